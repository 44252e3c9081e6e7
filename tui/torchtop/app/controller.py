"""What the viewer may ask of the side that launches; it knows nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from torchtop.session.inspections import Inspected
from torchtop.session.paths import SessionPaths
from torchtop.session.stacks import RankStack

StopMode = Literal["soft", "stop", "kill"]


class ControllerError(Exception):
    """Something could not be done; the message is one line that says what to do."""


@dataclass(frozen=True)
class WorkloadEntry:
    """One workload of the catalog.

    Attributes:
        key: the digit that starts it, or None.
        name: its name in the catalog.
        summary: one line about it.
        source: where it comes from.
        problem: why it cannot be started, or None.
        defaults: its options with their defaults, in a session with that ``session.json``: sizes
            depend on the device, and on how many ranks there are.
    """

    key: int | None
    name: str
    summary: str
    source: Literal["builtin", "file"] = "builtin"
    problem: str | None = None
    defaults: Callable[[Mapping[str, Any]], Mapping[str, object]] = field(
        default=lambda _meta: {}, compare=False
    )


@dataclass(frozen=True)
class LeftBehind:
    """A process that a session without a supervisor has left on this machine.

    Attributes:
        session: that session's id.
        pid: the process's number.
        name: its name, as the kernel has it.
    """

    session: str
    pid: int
    name: str


class Controller(Protocol):
    """Starts, stops and finds sessions. Every method may block: the viewer calls it on a thread."""

    def workloads(self) -> Sequence[WorkloadEntry]:
        """The catalog, in the order in which it is shown."""
        ...

    def consent(self, name: str, options: Mapping[str, str]) -> str | None:
        """The full command that the user has to agree to before a workload starts, or None.

        Args:
            name: the workload's.
            options: those that it shall start with, as they were typed.

        Raises:
            ControllerError: there is no such workload.
        """
        ...

    def agree(self, name: str) -> None:
        """The user has agreed to the command that `consent` last gave for a workload.

        Raises:
            ControllerError: it cannot be remembered.
        """
        ...

    def start(self, name: str, options: dict[str, str]) -> Path:
        """Start a workload and return the directory of its new session.

        Raises:
            ControllerError: it cannot be started.
        """
        ...

    def stop(self, session: Path, mode: StopMode) -> None:
        """Ask for a session to be stopped; returns at once.

        Raises:
            ControllerError: the request cannot be made.
        """
        ...

    def wait_ended(self, session: Path, timeout_s: float) -> bool:
        """Wait until nothing of a session is left; False when `timeout_s` passed before."""
        ...

    def stacks(self, session: Path) -> Sequence[RankStack]:
        """The Python stacks of all ranks of a live session; takes seconds where one hangs.

        Raises:
            ControllerError: it is not live, or nobody answers.
        """
        ...

    def inspect(self, session: Path) -> Sequence[Inspected]:
        """One step of each rank of a live session, looked at; takes seconds, or two steps.

        Raises:
            ControllerError: it is not live, or no rank trains.
        """
        ...

    def left_behind(self, session: Path | None) -> Sequence[LeftBehind]:
        """What a session without a supervisor, or all of them, have left on this machine."""
        ...

    def sweep(self, session: Path | None) -> Sequence[LeftBehind]:
        """End what `left_behind` would give; takes seconds. Returns what could not be ended."""
        ...

    def save_summary(self, session: Path) -> Path:
        """Write the session's summary and return the path of the readable one.

        Raises:
            ControllerError: it cannot be written.
        """
        ...

    def idle_directory(self) -> Path:
        """A directory with samples of this machine, written for as long as the viewer runs.

        Raises:
            ControllerError: the sampler cannot be started.
        """
        ...

    def sessions(self) -> Sequence[SessionPaths]:
        """All sessions, newest first."""
        ...

    def close(self) -> None:
        """Let go of what the viewer alone needed (the idle sampler). Training goes on."""
        ...
