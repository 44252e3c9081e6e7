"""Rows of styled text, and text of others made harmless.

A row is a tuple of spans ``(text, style name)``. Panes are pure functions from a view to rows, so
they can be tested without a screen, and a theme can change under them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

from torchtop.session.brief import DANGLING

Span = tuple[str, str]
Row = tuple[Span, ...]

_DROPPED = frozenset("\ufe0e\ufe0f\u200b\ufeff")
_POINTS_PER_CELL = 4
"""Code points kept per cell of width: a letter under a thousand accents is cut, not stored."""


def clean(text: object, limit: int = 4000) -> str:
    """Text of others as one line that a terminal shows and never obeys.

    Control characters, line ends, surrogates and everything that steers direction or joining are
    replaced or dropped; what remains has a known width.

    Args:
        text: anything; its ``str`` is taken.
        limit: code points that are looked at.
    """
    line = str(text)[:limit]
    if line.isascii() and line.isprintable():
        return line
    return "".join(map(_clean_char, line))


def _clean_char(char: str) -> str:
    if char == "\t":
        return "  "
    if char in _DROPPED:
        return ""
    category = unicodedata.category(char)
    if category in ("Cc", "Zl", "Zp"):
        return " " if char in "\n\r\v\f" else "\N{MIDDLE DOT}"
    if category == "Cf":
        return ""
    if category in ("Cs", "Co", "Cn"):
        return "?"
    return char


def width(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def row_width(row: Iterable[Span]) -> int:
    """Cells that a row takes."""
    return sum(width(text) for text, _ in row)


def cut(text: str, cells: int, ellipsis: str = "…") -> str:
    """Text cut to at most `cells`, with an ellipsis where something is missing."""
    if cells <= 0:
        return ""
    text = text[: cells * _POINTS_PER_CELL]
    if width(text) <= cells:
        return text
    if cells <= len(ellipsis):
        return set_cell_size(text, cells)
    return set_cell_size(text, cells - width(ellipsis)).rstrip() + ellipsis


def cut_words(text: str, cells: int) -> str:
    """A sentence cut to at most `cells` between words, and never between a number and its unit.

    Where a whole sentence or clause takes half of the cells or more, the cut comes after it. What
    is left of "27.3 ms of a 78.8 ms step" must not read as another value. Where nothing but a
    fragment would be left, it is cut as `cut` does.
    """
    if len(text) <= cells * _POINTS_PER_CELL and width(text) <= cells:
        return text
    words = cut(text, cells - 2, "").split(" ")
    if not text.startswith(" ".join(words) + " "):
        words.pop()
    while words and (words[-1] in DANGLING or words[-1].replace(",", "")[:1].isdigit()):
        words.pop()
    kept = " ".join(words)
    for mark in ("; ", ". "):
        whole = kept.rpartition(mark)[0]
        if whole and width(whole) * 2 >= cells:
            return f"{whole}{mark.strip(' ;')} …"
    kept = kept.rstrip(",;:·→ ")
    return f"{kept} …" if width(kept) * 2 >= cells else cut(text, cells)


def pad(text: str, cells: int, align: str = "<") -> str:
    """Text cut or filled to exactly `cells`; `align` is ``<``, ``>`` or ``^``."""
    text = cut(text, cells)
    space = cells - width(text)
    if align == ">":
        return " " * space + text
    if align == "^":
        return " " * (space // 2) + text + " " * (space - space // 2)
    return text + " " * space


def fit(row: Iterable[Span], cells: int, fill: str = "") -> Row:
    """A row of exactly `cells`: cut at the right, or filled with spaces of style `fill`.

    Every row that is drawn comes through here: what was not cleaned before is cleaned now.
    """
    spans: list[Span] = []
    left = cells
    for text, style in row:
        if left <= 0:
            break
        if not text:
            continue
        if not text.isprintable():
            text = clean(text)  # noqa: PLW2901
        size = width(text)
        if size > left and width(text.rstrip()) <= left:
            size = left
            piece = set_cell_size(text, left)
        elif size > left:
            size = left
            piece = set_cell_size(text, left - 1) + "…" if left > 1 else set_cell_size(text, left)
        else:
            piece = text
        left -= size
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + piece, style)
        else:
            spans.append((piece, style))
    if left > 0:
        spans.append((" " * left, fill))
    return tuple(spans)


def spread(left: Iterable[Span], right: Iterable[Span], cells: int) -> Row:
    """A row with one part at each end; where both do not fit, the left one is cut."""
    tail = tuple(right)
    space = cells - row_width(tail)
    if space < cells // 3:
        return fit((*left, (" ", ""), *tail), cells)
    return fit((*fit(left, space), *tail), cells)


def wrap(text: str, cells: int, rows: int) -> list[str]:
    """Text broken between words into at most `rows` lines of at most `cells`; the last is cut."""
    lines: list[str] = []
    rest = text.split()
    while rest and len(lines) < rows:
        if len(lines) == rows - 1:
            lines.append(cut_words(" ".join(rest), cells))
            break
        line = rest.pop(0)
        while rest and width(line) + 1 + width(rest[0]) <= cells:
            line += " " + rest.pop(0)
        lines.append(cut(line, cells))
    return lines


def broken(text: str, cells: int) -> list[str]:
    """All of a text in lines of at most `cells`, broken anywhere: nothing of it is changed."""
    if text.isascii():
        return [text[at : at + cells] for at in range(0, len(text), cells)] or [""]
    lines, left = [""], cells
    for char in text:
        size = width(char)
        if size > left and lines[-1]:
            lines.append("")
            left = cells
        lines[-1] += char
        left -= size
    return lines


def plain(row: Iterable[Span]) -> str:
    """The text of a row."""
    return "".join(text for text, _ in row)


def asciify(text: str) -> str:
    """Text for a terminal that knows ASCII alone, cell for cell."""
    if text.isascii():
        return text
    return "".join(_ASCII.get(c, c if c.isascii() else "?" * max(0, width(c))) for c in text)


_ASCII = {
    "…": "~",
    "–": "-",
    "—": "-",
    "·": ".",
    "•": "*",
    "→": ">",
    "×": "x",
    "°": " ",
    "‹": "<",
    "›": ">",
    "▏": "|",
    "▲": "!",
    "◆": "!",
    "●": "*",
    "○": "o",
    "✓": "+",
    "✗": "x",
    "▸": ">",
    "■": "#",
    "µ": "u",
    "≤": "<",
    "≥": ">",
    "≈": "~",
    "↑": "^",
    "↓": "v",
    "←": "<",
    "'": "'",
    "’": "'",
    "−": "-",
    "─": "-",
    "│": "|",
    "█": "#",
    "▇": "#",
}
