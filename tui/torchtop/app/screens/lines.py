"""Sheets of plain lines that scroll: help, and the options in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from torchtop.app.keys import key_name, sheet_key
from torchtop.app.panes.silence import last_seen
from torchtop.app.screens.sheet import Sheet
from torchtop.app.text import Row, clean, pad, row_width
from torchtop.session import inspections
from torchtop.session.inspections import Inspected
from torchtop.session.stacks import RankStack, tell
from torchtop.session.state import Snapshot


class Lines(Sheet[None]):
    """Rows to read; scrolls, and leaves by Esc, q, or the key that opened it.

    Args:
        heading: the box's title.
        lines: the rows.
        closing: a further key that closes it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        sheet_key("escape,q,enter,ctrl+c", "close", "close"),
        sheet_key("up,k", "scroll(-1)", "up"),
        sheet_key("down,j", "scroll(1)", "down"),
        sheet_key("pageup", "scroll(-10)", "page up"),
        sheet_key("pagedown,space", "scroll(10)", "page down"),
    ]

    def __init__(self, heading: str, lines: Sequence[Row], closing: str) -> None:
        super().__init__()
        self.heading = heading
        self.lines = tuple(lines)
        self.closing = closing
        self.at = 0

    def wanted(self) -> tuple[int, int]:
        """Large enough to read without scrolling, if the screen is."""
        return max((row_width(row) for row in self.lines), default=20), len(self.lines)

    def rows(self, width: int, height: int) -> list[Row]:
        """The part that is in view."""
        space = height if len(self.lines) <= height else height - 1
        self.at = max(0, min(self.at, len(self.lines) - space))
        shown = list(self.lines[self.at : self.at + space])
        if space < height:
            below = len(self.lines) - self.at - space
            shown.append(((f"{below} more lines below" if below else "the end", "faint"),))
        return shown

    def typed(self, event: events.Key) -> bool:
        """The key that opened the sheet closes it."""
        if event.character == self.closing:
            self.dismiss()
        return event.character == self.closing

    def action_close(self) -> None:
        """Back to the board."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Move through the lines."""
        self.at += lines
        self.refresh_rows()


def key_sheet(screen: Screen[Any], bindings: Iterable[BindingType]) -> Lines:
    """The sheet with a screen's keys, as they are bound now.

    Args:
        screen: the one that takes the keys.
        bindings: those to tell, in the order of the page.
    """
    order = [binding.id for binding in bindings if isinstance(binding, Binding)]
    active = [active.binding for active in screen.active_bindings.values()]
    bound = sorted(
        (b for b in active if b.id in order), key=lambda b: (order.index(b.id), len(b.key))
    )
    return Lines("keys", help_lines(bound), "?")


def help_lines(bindings: Iterable[Binding]) -> list[Row]:
    """The keys in groups, as they are bound now; keys with one tooltip share a line.

    Args:
        bindings: those in force, in the order of the page.
    """
    groups: dict[str, dict[str, list[str]]] = {}
    for binding in bindings:
        if binding.tooltip and binding.group is not None:
            keys = groups.setdefault(binding.group.description, {}).setdefault(binding.tooltip, [])
            keys.append(binding.key_display or key_name(binding.key))
    rows: list[Row] = []
    for name, lines in groups.items():
        if rows:
            rows.append(())
        rows.append(((name, "title"),))
        rows += [((pad(_keys(keys), 17), "key"), (text, "")) for text, keys in lines.items()]
    return rows


def _keys(keys: Sequence[str]) -> str:
    """Keys in a row, digits as a range, and of many the first and the last; a Shift once."""
    if len(keys) > 4:
        return (
            f"{keys[0]}-{keys[-1]}" if keys[0].isdigit() else f"{keys[0]} {keys[1]} ... {keys[-1]}"
        )
    modifier = keys[0][: keys[0].rfind("+") + 1]
    return " ".join([keys[0], *(key.removeprefix(modifier) for key in keys[1:])])


_STACK_STYLES = {
    "rank": ("", "title"),
    "own": ("  ", "value"),
    "note": ("    ", "faint"),
    "library": ("      ", "dim"),
    "blank": ("", ""),
}


def stack_lines(stacks: Sequence[RankStack], snapshot: Snapshot | None) -> list[Row]:
    """The Python stacks of all ranks, each with the moment when its rank was last seen.

    Args:
        stacks: of all ranks.
        snapshot: the session, as it is seen at this moment.
    """
    seen = {} if snapshot is None else last_seen(snapshot)
    rows: list[Row] = []
    for line in tell(stacks, seen):
        indent, style = _STACK_STYLES[line.kind]
        rows.append(((indent, ""), (clean(line.text, 400), style)))
    return rows or [(("no rank has been started yet", "dim"),)]


_FOUND_STYLES = {"rank": ("", "title"), "call": ("  ", "value"), "note": ("  ", "faint")}


def inspected_lines(found: Sequence[Inspected]) -> list[Row]:
    """The calls of one step that made the hosts wait."""
    rows: list[Row] = []
    for line in inspections.tell(found):
        indent, style = _FOUND_STYLES[line.kind]
        rows.append(((indent, ""), (clean(line.text, 400), style)))
    return rows or [(("no rank trains", "dim"),)]


def option_lines(snapshot: Snapshot, defaults: Mapping[str, object]) -> list[Row]:
    """What the session was started with.

    Args:
        snapshot: the session.
        defaults: the options that its workload has today, with their defaults; those that were
            set are marked.
    """
    meta: Mapping[str, Any] = snapshot.meta
    rows: list[Row] = []
    names = ("workload", "source", "device", "nproc", "steps", "duration_s", "python", "cwd", "id")
    _pairs(rows, "session", [(name, meta.get(name)) for name in names])
    argv = meta.get("argv")
    if isinstance(argv, list):
        _pairs(rows, "", [("argv", " ".join(str(part) for part in argv))])
    options, versions = meta.get("options"), meta.get("versions")
    _options(rows, options if isinstance(options, Mapping) else {}, defaults)
    if isinstance(versions, Mapping):
        _pairs(rows, "versions", list(versions.items()))
    return rows or [(("no session is shown", "dim"),)]


def _options(rows: list[Row], given: Mapping[str, object], defaults: Mapping[str, object]) -> None:
    """All options: those that were set are marked, the others have their default."""
    values = {**defaults, **given}
    if not values:
        return
    if rows:
        rows.append(())
    rows.append((("options", "title"), ("  ● set, the others by default", "faint")))
    for name, value in values.items():
        mark = "●" if name in given else " "
        shown = "none" if value is None else str(value)
        shown = shown.lower() if isinstance(value, bool) else shown
        style = "value" if name in given else ""
        rows.append(
            ((pad(clean(name, 60), 14), "dim"), (f" {mark} ", "accent"), (clean(shown, 400), style))
        )


def _pairs(rows: list[Row], title: str, pairs: Sequence[tuple[object, object]]) -> None:
    known = [(clean(k, 60), clean(v, 400)) for k, v in pairs if v is not None]
    if not known:
        return
    if title:
        if rows:
            rows.append(())
        rows.append(((title, "title"),))
    rows.extend(((pad(key, 16), "dim"), (" ", ""), (value, "")) for key, value in known)
