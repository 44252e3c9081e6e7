"""What the browser's thread tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from textual.message import Message

from torchtop.session.baselines import Baseline
from torchtop.session.compare import Comparison
from torchtop.session.overview import Entry


@dataclass
class SessionsListed(Message):
    """The sessions as they stand, newest first, and the baselines by workload."""

    entries: tuple[Entry, ...]
    baselines: Mapping[str, Baseline]

    def can_replace(self, message: Message) -> bool:
        """Only the newest list is shown."""
        return isinstance(message, SessionsListed)


@dataclass
class SessionsCompared(Message):
    """Two sessions, compared."""

    comparison: Comparison
