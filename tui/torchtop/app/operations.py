"""What takes time and is done for the user on threads: starting, stopping, switching, saving."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from textual.message import Message

from torchtop.app.controller import Controller, ControllerError, StopMode
from torchtop.app.messages import (
    CatalogReady,
    Consented,
    Follow,
    LeftFound,
    Progress,
    StacksTaken,
    StepInspected,
    Told,
)
from torchtop.session.paths import SessionError, SessionPaths, told_warnings

STOP_LIMIT_S = 90.0
"""Above the whole stop ladder (DESIGN section 7: soft wait 20 s, then about 25 s)."""


class Operations:
    """Runs one operation at a time on a daemon thread, and posts how it goes.

    Args:
        controller: the side that launches.
        post: takes messages; called on those threads.
    """

    def __init__(self, controller: Controller, post: Callable[[Message], object]) -> None:
        self._controller, self._post = controller, post
        self._lock = threading.Lock()
        self._turning = threading.Lock()
        self.shown: Path | None = None
        """The session that was last asked for; it may not be on the screen yet."""

    def load(self, key: int | None = None) -> None:
        """Read the catalog, for a digit that was typed."""

        def work() -> None:
            self._post(CatalogReady(tuple(self._controller.workloads()), key))

        self._background(work)

    def idle(self) -> None:
        """Show this machine while there is no session."""

        def work() -> None:
            self._post(Follow(self._controller.idle_directory(), idle=True))

        self._background(work)

    def neighbour(self, direction: int) -> None:
        """Show the session after (1) or before (-1) the one that was last asked for."""

        def work() -> None:
            with self._turning:
                self._turn(direction)

        self._background(work)

    def _turn(self, direction: int) -> None:
        paths = [session.root for session in self._controller.sessions()]
        if not paths:
            self._post(Told("there are no sessions yet"))
            return
        at = paths.index(self.shown) if self.shown in paths else -1
        target = at - direction
        if 0 <= target < len(paths):
            self._show(paths[target])
        else:
            self._post(Told("no newer session" if direction > 0 else "no older session"))

    def save(self, session: Path) -> None:
        """Write the session's summary."""
        self._background(
            lambda: self._post(Told(f"saved {self._controller.save_summary(session)}"))
        )

    def consent(self, name: str, options: Mapping[str, str]) -> None:
        """Find out whether the user has to agree to a workload's command first."""

        def work() -> None:
            self._post(Consented(name, options, self._controller.consent(name, options)))

        self._background(work)

    def agree(self, name: str, options: Mapping[str, str]) -> None:
        """Remember that the user has agreed, and go on."""

        def work() -> None:
            self._controller.agree(name)
            self._post(Consented(name, options))

        self._background(work)

    def stacks(self, session: Path) -> None:
        """Have all ranks of a session write their stacks, also while another operation goes on."""

        def work() -> None:
            self._post(Progress("asking the ranks for their stacks ..."))
            try:
                found = tuple(self._controller.stacks(session))
            finally:
                if not self._lock.locked():
                    self._post(Progress(""))
            self._post(StacksTaken(session, found))

        self._background(work)

    def inspect(self, session: Path) -> None:
        """Have each rank of a session look at one step, also while another operation goes on."""

        def work() -> None:
            self._post(Progress("inspecting one step of each rank ..."))
            try:
                found = tuple(self._controller.inspect(session))
            finally:
                if not self._lock.locked():
                    self._post(Progress(""))
            self._post(StepInspected(session, found))

        self._background(work)

    def look_for_left(self, session: Path | None, ask: bool = False) -> None:
        """Find out what a lost session, or all of them, have left running."""

        def work() -> None:
            found = tuple(self._controller.left_behind(session))
            self._post(LeftFound(session, found, ask))

        self._background(work)

    def sweep(self, session: Path | None) -> None:
        """End what a lost session, or all of them, have left, and tell."""

        def work() -> None:
            self._post(Progress("ending what lost sessions have left ..."))
            remaining = tuple(self._controller.sweep(session))
            self._post(LeftFound(session, remaining))
            pids = ", ".join(str(left.pid) for left in remaining[:5])
            stays = f"cannot be ended: pid {pids}; they wait for a device or a file system"
            self._post(Told(stays, True) if remaining else Told("nothing of it is left"))

        self._exclusive(work)

    def start(self, name: str, options: Mapping[str, str]) -> None:
        """Start a workload and show its session."""
        self._exclusive(lambda: self._start(name, options))

    def stop(self, session: Path, label: str, mode: StopMode = "stop") -> None:
        """Stop a session and wait until it is gone."""
        self._exclusive(lambda: self._stop(session, label, mode))

    def kill(self, session: Path, label: str) -> None:
        """Kill a session at once, even while a stop is under way."""

        def work() -> None:
            try:
                self._wait(session, label, "killing", "kill")
            finally:
                if not self._lock.locked():  # else the stop that is under way clears its own note
                    self._post(Progress(""))

        self._background(work)

    def switch(self, session: Path, label: str, name: str, options: Mapping[str, str]) -> None:
        """Stop a session, wait until it is gone, and start a workload."""

        def work() -> None:
            if self._stop(session, label, "stop"):
                self._start(name, options)

        self._exclusive(work)

    def stop_then(self, session: Path, label: str, then: Callable[[], None]) -> None:
        """Stop a session, wait, and call `then` (on that thread)."""

        def work() -> None:
            if self._stop(session, label, "stop"):
                then()

        self._exclusive(work)

    def _start(self, name: str, options: Mapping[str, str]) -> None:
        self._post(Progress(f"starting {name} ..."))
        started = self._controller.start(name, dict(options))
        self._show(started)
        for line in told_warnings(SessionPaths(started)):
            self._post(Told(line))

    def _show(self, session: Path) -> None:
        self.shown = session
        self._post(Follow(session))

    def _stop(self, session: Path, label: str, mode: StopMode) -> bool:
        return self._wait(session, label, "stopping", mode)

    def _wait(self, session: Path, label: str, doing: str, mode: StopMode) -> bool:
        """Ask for an end and wait for it, telling how long; False past the limit, told too."""
        began = time.monotonic()
        self._post(Progress(f"{doing} {label} ..."))
        self._controller.stop(session, mode)
        while not self._controller.wait_ended(session, 1.0):
            waited = time.monotonic() - began
            if waited > STOP_LIMIT_S:
                self._post(
                    Told(f"{label} is still there after {waited:.0f} s: x, then k, kills it", True)
                )
                return False
            self._post(Progress(f"{doing} {label} ... {waited:.0f} s"))
        return True

    def _exclusive(self, work: Callable[[], object]) -> None:
        """Run on a thread unless another operation is under way."""
        if not self._lock.acquire(blocking=False):
            self._post(Told("still busy with the last request"))
            return

        def guarded() -> None:
            try:
                self._guard(work)
            finally:
                self._lock.release()
                self._post(Progress(""))

        threading.Thread(target=guarded, name="torchtop-operation", daemon=True).start()

    def _background(self, work: Callable[[], object]) -> None:
        threading.Thread(
            target=lambda: self._guard(work), name="torchtop-operation", daemon=True
        ).start()

    def _guard(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (ControllerError, SessionError) as error:
            self._post(Told(str(error), error=True))
        except Exception as error:
            self._post(Told(f"{type(error).__name__}: {error}", error=True))
