"""Plain text for lines and tables: any foreign text made safe, numbers with units."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchtop.launch.sweep import Marked

_LINE = 1500
"""Characters of a message; the longest of ours have a third of it."""

_NAMED = 4
"""Processes that are named in a line."""


def safe(text: object, limit: int | None = None) -> str:
    """Foreign text as one line that cannot move the cursor or change colours."""
    flat = "".join(c if c.isprintable() else "�" for c in str(text))
    return flat if limit is None or len(flat) <= limit else flat[: limit - 1] + "…"


def one_line(text: str, whole: bool = False) -> str:
    """A message as one line for a terminal, in which what was typed or read is not too long.

    Args:
        text: the message.
        whole: clean it, and leave nothing out.
    """
    flat = safe(" ".join(text.splitlines()))
    if whole:
        return flat
    words = re.sub(r"\S{256,}", lambda word: _middle_out(word[0], 120, 60), flat)
    return words if len(words) <= _LINE else _middle_out(words, _LINE * 2 // 3, _LINE // 4)


def _middle_out(text: str, head: int, tail: int) -> str:
    return f"{text[:head]}…{text[-tail:]}"


def duration(seconds: float | None) -> str:
    """Seconds as ``m:ss`` or ``h:mm:ss``."""
    if seconds is None:
        return "–"
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(value: float | None, digits: int = 3) -> str:
    """A number to a few significant digits; a dash where it is not known."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def named(left: Sequence[Marked]) -> str:
    """Processes by name, pid and session, the first few of them."""
    told = [f"{safe(p.process.name)} (pid {p.process.pid}) of {safe(p.session)}" for p in left]
    more = len(told) - _NAMED
    return ", ".join(told[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under a head, in columns as wide as they need."""
    cells = [[safe(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)
