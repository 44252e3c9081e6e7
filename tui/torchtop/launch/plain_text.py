"""Text that a training process wrote, made harmless before it goes into a record."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|[PX^_][^\x1b]*(?:\x1b\\)?"  # device control and other strings
    r"|[ -/]*[0-~])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_LINE_LIMIT = 1000


def plain(text: str) -> str:
    """The text without terminal escapes and control characters; newlines and tabs stay."""
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def last_lines(data: bytes, count: int) -> list[str]:
    """The last lines of raw output, as a terminal would have left them.

    Args:
        data: raw bytes; what a line has before its last carriage return was overwritten.
        count: how many lines that are not empty.
    """
    lines = []
    for line in data.decode("utf-8", "replace").split("\n"):
        kept = plain(line.rstrip("\r").rpartition("\r")[2]).rstrip()
        if kept:
            lines.append(kept[:_LINE_LIMIT])
    return lines[-count:]
