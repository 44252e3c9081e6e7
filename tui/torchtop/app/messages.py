"""What the daemon threads tell the app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textual.message import Message

from torchtop.app.controller import LeftBehind, WorkloadEntry
from torchtop.app.logs import LogPage
from torchtop.app.view import ReplayPosition
from torchtop.session.baselines import Baseline
from torchtop.session.inspections import Inspected
from torchtop.session.stacks import RankStack
from torchtop.session.state import Snapshot


@dataclass
class SnapshotReady(Message):
    """A new look at the session; only the newest that waits is handled."""

    source: Path
    snapshot: Snapshot
    logs: LogPage
    replay: ReplayPosition | None = None
    baseline: Baseline | None = None

    def can_replace(self, message: Message) -> bool:
        """A later snapshot of the same session stands in for an earlier one."""
        return isinstance(message, SnapshotReady) and message.source == self.source


@dataclass
class CatalogReady(Message):
    """The workloads were read; for a digit that was typed, where there was none of it."""

    entries: tuple[WorkloadEntry, ...]
    key: int | None = None


@dataclass
class Progress(Message):
    """What an operation is doing; empty when it is over."""

    text: str

    def can_replace(self, message: Message) -> bool:
        """Only the newest note is shown."""
        return isinstance(message, Progress)


@dataclass
class Follow(Message):
    """Show another directory: a session's (or play it back), or samples of this machine alone."""

    directory: Path
    idle: bool = False
    replay: bool = False

    def can_replace(self, message: Message) -> bool:
        """Of several sessions that are asked for in haste only the last is opened.

        Textual asks the earlier message about the one that waits behind it. Samples of the machine
        that come late must not take the place of a session that was started meanwhile.
        """
        return isinstance(message, Follow) and not message.idle


@dataclass
class Consented(Message):
    """A workload may start, or may not until the user has agreed to its command.

    Attributes:
        name: the workload.
        options: what it is to be started with.
        command: what the user has to agree to; None when there is nothing left to ask.
    """

    name: str
    options: Mapping[str, str]
    command: str | None = None


@dataclass
class LeftFound(Message):
    """What a lost session, or all of them (None), have left running on this machine.

    Attributes:
        session: the directory that was asked for.
        processes: what there is; none is an answer too.
        ask: the user wants to be asked whether to end them.
    """

    session: Path | None
    processes: tuple[LeftBehind, ...]
    ask: bool = False


@dataclass
class StacksTaken(Message):
    """The Python stacks of a session's ranks."""

    session: Path
    stacks: tuple[RankStack, ...]


@dataclass
class StepInspected(Message):
    """What the ranks of a session have found in one step each."""

    session: Path
    found: tuple[Inspected, ...]


@dataclass
class Told(Message):
    """A line for the user: an outcome, or an error."""

    text: str
    error: bool = False
