"""All that the panes may look at: a snapshot, and the viewer's own state around it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchtop.app.charts.glyphs import UNICODE, Glyphs
from torchtop.app.controller import LeftBehind, WorkloadEntry
from torchtop.app.logs import LogPage
from torchtop.session.baselines import Baseline
from torchtop.session.state import Snapshot

THINNED_S = 30.0
"""Of a recording older than two hours, analyses lie so far apart at most."""

STALE_AFTER_S = 3.0
"""Data older than this is marked: samplers and analyst write once a second."""


@dataclass(frozen=True)
class ReplayPosition:
    """Where a replay stands, in seconds from the start of the session, and how fast it goes."""

    at_s: float
    length_s: float
    playing: bool
    speed: float = 1.0


@dataclass(frozen=True)
class View:
    """What is drawn.

    Attributes:
        snapshot: the session at this moment; None before anything was read.
        logs: the ends of the ranks' logs.
        catalog: the workloads.
        replay: set when a recorded session is replayed.
        glyphs: the characters that charts use.
        textured: there is no colour: phases are told apart by letters alone.
        paused: the display stands still while the run goes on.
        interval_s: seconds between two looks at the session.
        busy: what is being done for the user at this moment ("stopping slow-loader ..."), or "".
        baseline: what the session's workload is held against, if the user has marked one.
        left: what the session, which is lost, has left on this machine; None before that is known.
    """

    snapshot: Snapshot | None = None
    logs: LogPage = field(default_factory=LogPage)
    catalog: tuple[WorkloadEntry, ...] = ()
    replay: ReplayPosition | None = None
    glyphs: Glyphs = UNICODE
    textured: bool = False
    paused: bool = False
    interval_s: float = 1.0
    busy: str = ""
    baseline: Baseline | None = None
    left: tuple[LeftBehind, ...] | None = None

    @property
    def idle(self) -> bool:
        """Whether no session is shown."""
        return self.snapshot is None or self.snapshot.status == "idle"

    @property
    def stale_after_s(self) -> float:
        """An analysis older than this is marked."""
        return THINNED_S if self.replay else STALE_AFTER_S
