"""Pieces that several panes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchtop.app.charts.bar import meter
from torchtop.app.charts.glyphs import Glyphs
from torchtop.app.format import known
from torchtop.app.text import Row, Span, fit, plain, row_width
from torchtop.session.records import PHASES, UNKNOWN
from torchtop.session.state import Snapshot

SHOWN_PHASES = (*PHASES, UNKNOWN)
PHASE_LETTERS = dict(zip(SHOWN_PHASES, "DFBCPOX?", strict=True))
PHASE_NAMES = {
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "exposed_comm": "exposed comm",
    "pre_optimizer": "pre-optimizer",
    "optimizer": "optimizer",
    "other": "other",
    "unknown": "unknown",
}
PHASE_SHORT = {
    **PHASE_NAMES,
    "exposed_comm": "exp comm",
    "pre_optimizer": "pre-opt",
    "optimizer": "optim",
}
SEVERITIES: dict[str, tuple[str, str, str]] = {
    "ok": ("✓", "HEALTHY", "ok"),
    "note": ("○", "NOTE", "note"),
    "warn": ("▲", "WARNING", "warn"),
    "critical": ("◆", "CRITICAL", "critical"),
    "unknown": ("?", "UNDECIDED", "unknown"),
}
"""Severity to symbol, word and style: the word alone is enough."""


def heading(title: str, aside: Iterable[Span], cells: int, glyphs: Glyphs, focused: bool) -> Row:
    """A pane's first line: its name on a rule, and what matters most at the right."""
    name = f" {title} " if focused else title
    left: list[Span] = [(glyphs.rule + " ", "rule"), (name, "focus" if focused else "title")]
    right = tuple(aside)
    room = cells - row_width(left) - 3
    if right and row_width(right) > room:
        right = fit(right, room) if room > 8 else ()
    tail: list[Span] = [(" ", ""), *right, (" ", "")] if right else []
    line = cells - row_width(left) - 1 - row_width(tail)
    return fit((*left, (" ", ""), (glyphs.rule * max(0, line), "rule"), *tail), cells)


def titled(title: str, titles: Iterable[Span], cells: int, glyphs: Glyphs, focused: bool) -> Row:
    """A pane's first line with column titles on it; its name takes the place of the first ones."""
    name = f" {title} " if focused else f"{title}"
    left: list[Span] = [(glyphs.rule + " ", "rule"), (name, "focus" if focused else "title")]
    spans: list[Span] = []
    skip = row_width(left)
    line = plain(((" ", ""), *titles))
    rest = line[skip:]
    if line[skip - 1 : skip + 1].strip():  # the name ends within a title
        rest = " " * len(rest.partition(" ")[0]) + "".join(rest.partition(" ")[1:])
    spans = [*left, (rest, "faint")]
    return fit(spans, cells)


def level_style(share: float | None, high: float = 0.85, full: float = 0.95) -> str:
    """The style of a meter that is better not full."""
    if share is None or share < high:
        return "bar"
    return "bar.high" if share < full else "bar.full"


def ratio(part: Any, whole: Any) -> float | None:
    """A share of 0..1, or None where either side is unknown."""
    above, below = known(part), known(whole)
    return above / below if above is not None and below else None


def level_meter(part: Any, whole: Any, cells: int, glyphs: Glyphs) -> list[Span]:
    """A meter of `part` in `whole`, coloured by how full it is."""
    share = ratio(part, whole)
    return meter(share, cells, glyphs, level_style(share))


def joined(parts: Iterable[Iterable[Span]], gap: str = " · ") -> list[Span]:
    """Parts with a faint separator between them; empty ones are left out."""
    spans: list[Span] = []
    for part in parts:
        piece = list(part)
        if piece:
            if spans:
                spans.append((gap, "faint"))
            spans.extend(piece)
    return spans


def child(record: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """A field that should be an object; empty for anything else."""
    value = (record or {}).get(key)
    return value if isinstance(value, Mapping) else {}


def verdict_of(snapshot: Snapshot | None) -> Mapping[str, Any]:
    """The verdict of the last analysis; empty when there is none."""
    return child(snapshot.analysis if snapshot else None, "verdict")


def records(record: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    """A field that should be a list of objects; what is none is left out."""
    return [entry for entry in items(record, key) if isinstance(entry, Mapping)]


def items(record: Mapping[str, Any] | None, key: str) -> list[Any]:
    """A field that should be a list; empty for anything else."""
    value = (record or {}).get(key)
    return list(value) if isinstance(value, (list, tuple)) else []
