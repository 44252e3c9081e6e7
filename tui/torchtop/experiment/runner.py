"""Measures a sweep: one session after the other, until there is nothing left or it is told to stop.

Each cell runs as any session does, under a supervisor of its own, and what is known of it comes
from the session's records. So a sweep that is killed loses nothing: the session goes on, and the
sweep takes it up when it is started again.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from torchtop.experiment import result, schedule
from torchtop.experiment.journal import Journal
from torchtop.experiment.measure import run_of
from torchtop.experiment.plan import Cell, Plan, Settings
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session.follow import Follower
from torchtop.session.locks import is_locked
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    liveness,
    read_json,
    request_stop,
    write_json,
)
from torchtop.session.snapshot import Snapshot

_POLL_S = 0.2
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Limit:
    """How long one run shall be.

    Attributes:
        steps: in all; None for as many as take `seconds` after the warm-up.
        seconds: see `steps`.
        warmup: steps before that.
    """

    steps: int | None
    seconds: float
    warmup: int


MakeSpec = Callable[[Cell, Limit], LaunchSpec]
"""The launch of a cell; raises `LaunchError` where it cannot be."""


class Watcher(Protocol):
    """Is told how a sweep goes on. Called on the thread that measures."""

    def begins(self, cell: Cell, number: int, session: SessionPaths) -> None:
        """The `number`-th run of a cell (from 1) has been started, or was found running."""

    def goes_on(self, cell: Cell, snapshot: Snapshot) -> None:
        """How the run stands; about once a second."""

    def ended(self, cell: Cell, run: dict[str, Any], table: dict[str, Any]) -> None:
        """A run has ended, with the table as it now is."""


class Runner:
    """The measuring of one sweep.

    Args:
        plan: what to measure.
        journal: where it is kept.
        make_spec: the launch of a cell.
        watcher: is told.
        created_at: when the sweep was made, ISO 8601.
    """

    def __init__(
        self, plan: Plan, journal: Journal, make_spec: MakeSpec, watcher: Watcher, created_at: str
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._make_spec = make_spec
        self._watcher = watcher
        self._created_at = created_at
        self._stop = threading.Event()
        self._kill = threading.Event()
        self._session: SessionPaths | None = None
        self._cell: str | None = None
        self._forget_requests()

    @property
    def is_stopping(self) -> bool:
        """Whether it has been told to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop the run that goes on, and begin no other; a second time: at once. Any thread."""
        if self._stop.is_set():
            self._kill.set()
        self._stop.set()

    def _forget_requests(self) -> None:
        for mode in ("stop", "kill"):
            self._journal.paths.request(mode).unlink(missing_ok=True)

    def _take_requests(self) -> None:
        """Another process may ask, by leaving a file in the sweep's directory."""
        if self._journal.paths.request("kill").exists():
            self._kill.set()
            self._stop.set()
        elif self._journal.paths.request("stop").exists():
            self._stop.set()

    def run(self) -> dict[str, Any]:
        """Measure until all is done or it is told to stop.

        Returns:
            The table, which is also in ``sweep.json``.

        Raises:
            SessionError: the sweep's directory cannot be written.
        """
        for name, paths in self._journal.unfinished():
            if not self._stop.is_set() and name in {cell.id for cell in self._plan.cells}:
                self._finish(self._plan.cell(name), paths)
        while (cell := schedule.next_cell(self._plan, self._journal.runs)) is not None:
            self._take_requests()
            if self._stop.is_set():
                break
            self._measure(cell)
        self._forget_requests()
        left = schedule.runs_left(self._plan, self._journal.runs)
        return self._publish("stopped" if left else "done")

    def _measure(self, cell: Cell) -> None:
        limit = limit_of(self._plan.settings, self._journal.runs.get(cell.id, []))
        try:
            paths = start_session(self._make_spec(cell, limit))
        except (LaunchError, SessionError) as error:
            run = {"session": None, "status": "failed", "reason": str(error), "measured": None}
            self._journal.ended(cell.id, run)
            self._watcher.ended(cell, run, self._publish("running"))
            return
        self._journal.started(cell.id, paths.id)
        self._finish(cell, paths)

    def _finish(self, cell: Cell, paths: SessionPaths) -> None:
        """Wait for a session, and take what it measured."""
        self._cell, self._session = cell.id, paths
        self._publish("running")
        number = len(schedule.measured(self._journal.runs.get(cell.id, ()))) + 1
        self._watcher.begins(cell, number, paths)
        self._wait(cell, paths)
        run = run_of(paths, self._plan.settings.warmup)
        self._cell = self._session = None
        self._journal.ended(cell.id, run)
        self._watcher.ended(cell, run, self._publish("running"))

    def _wait(self, cell: Cell, paths: SessionPaths) -> None:
        follower = Follower(paths.root)
        asked: str | None = None
        look_s = 0.0
        while not _is_over(paths):
            self._take_requests()
            wanted = "kill" if self._kill.is_set() else "stop" if self._stop.is_set() else None
            if wanted is not None and wanted != asked:
                request_stop(paths, wanted, "sweep")
                asked = wanted
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + _LOOK_EVERY_S
                self._watcher.goes_on(cell, follower.poll())
            # An event that is set already must not make this a busy loop.
            (self._kill if self._stop.is_set() else self._stop).wait(_POLL_S)
            if self._kill.is_set():
                time.sleep(_POLL_S)

    def _publish(self, status: str) -> dict[str, Any]:
        paths = self._journal.paths
        table = result.build(
            self._plan,
            self._journal.runs,
            status,
            running=self._cell,
            session=None if self._session is None else self._session.id,
            id=paths.id,
            created_at=self._created_at,
            updated_at=now(),
            host=socket.gethostname(),
        )
        try:
            write_json(paths.result, table)
        except OSError as error:
            raise SessionError(f"cannot write {paths.result}: {error.strerror}") from None
        return table


def limit_of(settings: Settings, runs: list[dict[str, Any]]) -> Limit:
    """How long the next run of a cell shall be: as many steps as the first one had."""
    steps = settings.steps
    made = schedule.measured(runs)
    if steps is None and made:
        steps = int(made[0]["steps"]) + 1
    total = None if steps is None else settings.warmup + steps
    return Limit(total, settings.seconds, settings.warmup)


def _is_over(paths: SessionPaths) -> bool:
    """Whether a session has ended in order, or for good."""
    if any(is_locked(node.lock) for node in paths.nodes()):
        return False
    return liveness(paths) in ("ended", "lost")


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def created(paths: Any) -> str:
    """When a sweep was made, as its table says; now where there is none."""
    told = (read_json(paths.result) or {}).get("created_at")
    return str(told) if told else now()
