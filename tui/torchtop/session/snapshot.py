"""What a session looks like at one moment, as a value that nothing changes any more.

The viewer, ``--no-tui`` and replay all draw a `Snapshot` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["idle", "starting", "running", "stopping", "done", "failed", "stopped", "lost"]


@dataclass(frozen=True)
class Gpu:
    """One GPU of one node: static facts, the last tick, and series (oldest first)."""

    host: str
    index: int
    facts: Mapping[str, Any]
    now: Mapping[str, Any]
    series: Mapping[str, tuple[float | None, ...]]
    processes: tuple[Mapping[str, Any], ...]
    age_s: float
    ranks: tuple[int, ...]
    """Ranks of this session that run on it."""


@dataclass(frozen=True)
class Host:
    """One node's host: the last tick's ``host`` fields, facts, and series."""

    name: str
    facts: Mapping[str, Any]
    now: Mapping[str, Any]
    cpu_series: tuple[float | None, ...]
    age_s: float
    nvml_error: str | None


@dataclass(frozen=True)
class Rank:
    """What is known of one rank."""

    rank: int
    host: str
    header: Mapping[str, Any]
    loaders: tuple[Mapping[str, Any], ...]
    ddp: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    script: Mapping[str, Any]
    memory: Mapping[str, Any]
    marker: str | None
    marker_age_s: float | None
    ready: int | None
    process: Mapping[str, Any]
    """The last ``processes`` entry: cpu_percent, rss_bytes, workers."""
    exit_code: int | None
    exception: Mapping[str, Any] | None
    inspected: Mapping[str, Any] = field(default_factory=dict)
    """The last ``inspected`` record."""
    over: bool = False
    """Whether the process that trained has ended, or another one has come in its place."""


@dataclass(frozen=True)
class Point:
    """One second of the run, for charts. Null where unknown."""

    mono_ns: int
    step: int | None
    step_ms: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    data_share: float | None
    comm_share: float | None


@dataclass(frozen=True)
class Snapshot:
    """All that a screen shows of a session at `now_ns`."""

    meta: Mapping[str, Any]
    status: Status
    now_ns: int
    elapsed_s: float
    analysis: Mapping[str, Any] | None
    analysis_age_s: float | None
    points: tuple[Point, ...]
    """Per second, the last `SERIES_SECONDS`."""
    recent_step_ms: tuple[float, ...]
    """Latencies of the last finished steps, oldest first, at most 2000."""
    minutes: tuple[Mapping[str, Any], ...]
    gpus: tuple[Gpu, ...]
    hosts: tuple[Host, ...]
    ranks: tuple[Rank, ...]
    events: tuple[Mapping[str, Any], ...]
    exit: Mapping[str, Any] | None
    bad_lines: int = 0
    newer_schema: bool = False
    scalar_series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Scalars logged by the script, by name, beside `points`."""
    verdict_changes: tuple[tuple[int, str, str], ...] = ()
    """(mono_ns, kind, severity) of each new verdict, oldest first."""
    finding_changes: tuple[tuple[int, str, str], ...] = ()
    """The same of the findings beside it; severity "" where one is over."""
    deleted: bool = False
    """The session's directory is not there any more: nothing new can be seen of it."""
    unseen_supervisor: int | None = None
    """The pid of a supervisor that lives on although the directory was deleted."""

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """The verdict of the last analysis."""
        return (self.analysis or {}).get("verdict")

    @property
    def live(self) -> bool:
        """Whether the training may still be running."""
        return self.status in ("starting", "running", "stopping")
