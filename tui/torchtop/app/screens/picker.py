"""The workload picker: a list with summaries, narrowed by typing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from torchtop.app.controller import WorkloadEntry
from torchtop.app.keys import sheet_key
from torchtop.app.screens.sheet import Sheet
from torchtop.app.text import Row, Span, clean, cut, fit, pad


class Picker(Sheet["str | None"]):
    """Picks the name of a workload.

    Args:
        entries: the catalog.
        message: what to say above the list.
    """

    heading = "workloads"
    BINDINGS: ClassVar[list[BindingType]] = [
        sheet_key("enter", "take", "start"),
        sheet_key("escape,ctrl+c", "close", "cancel"),
        sheet_key("up,shift+tab", "move(-1)", "up"),
        sheet_key("down,tab", "move(1)", "down"),
        sheet_key("backspace", "erase", "erase"),
    ]

    def __init__(self, entries: Sequence[WorkloadEntry]) -> None:
        super().__init__()
        self.entries = tuple(entries)
        self.text = ""
        self.at = 0

    def renew(self, entries: Sequence[WorkloadEntry]) -> None:
        """Show what the catalog has come to; what was marked stays so while it is there."""
        if tuple(entries) == self.entries:
            return
        marked = self.found[self.at].name if self.found else None
        self.entries = tuple(entries)
        names = [entry.name for entry in self.found]
        self.at = names.index(marked) if marked in names else self.at
        self._fit()
        self.refresh_rows()

    def wanted(self) -> tuple[int, int]:
        """Room for the summaries."""
        return 100, min(24, len(self.entries) + 3)

    @property
    def found(self) -> list[WorkloadEntry]:
        """The entries that match what was typed."""
        words = self.text.lower().split()
        return [
            entry
            for entry in self.entries
            if all(word in f"{entry.name} {entry.summary}".lower() for word in words)
        ]

    def rows(self, width: int, height: int) -> list[Row]:
        """What was typed, then the list around the marked entry."""
        found = self.found
        self.at = max(0, min(self.at, len(found) - 1))
        prompt: list[Span] = [("filter ", "dim"), (self.text, "value"), ("▏", "accent")]
        rows: list[Row] = [fit(prompt, width)]
        space = max(1, height - 2)
        first = max(0, min(self.at - space // 2, len(found) - space))
        name = min(max((len(e.name) for e in self.entries), default=10), width // 3)
        for index, entry in enumerate(found[first : first + space], first):
            rows.append(_line(entry, index == self.at, name, width))
        if not found:
            rows.append(fit([("  nothing matches", "dim")], width))
        rows += [()] * (height - 1 - len(rows))
        rows.append(
            fit([("Enter", "key"), (" start  ", "dim"), ("Esc", "key"), (" back", "dim")], width)
        )
        return rows

    def typed(self, event: events.Key) -> bool:
        """Typing narrows the list."""
        if not (event.is_printable and event.character):
            return False
        self.text += event.character
        self.at = 0
        self.refresh_rows()
        return True

    def action_erase(self) -> None:
        """Take the last character back."""
        self.text = self.text[:-1]
        self.refresh_rows()

    def action_move(self, step: int) -> None:
        """Mark another entry."""
        self.at += step
        self.refresh_rows()

    def action_take(self) -> None:
        """Start the marked entry."""
        found = self.found
        if found and not found[self.at].problem:
            self.dismiss(found[self.at].name)

    def action_close(self) -> None:
        """Start nothing."""
        self.dismiss(None)


def _line(entry: WorkloadEntry, chosen: bool, name: int, width: int) -> Row:
    key = str(entry.key) if entry.key is not None else " "
    text = entry.problem or entry.summary
    style = "warn" if entry.problem else "dim"
    return fit(
        [
            ("▸ " if chosen else "  ", "accent"),
            (f"{key} ", "key"),
            (pad(cut(clean(entry.name, 100), name), name), "value" if chosen else ""),
            ("  ", ""),
            (clean(text, 300), style),
        ],
        width,
    )
