"""Columns that fit a width: the least important are left out first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchtop.app.text import Row, Span, fit, pad, row_width


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        key: where its cells are found in a record.
        title: its heading.
        cells: its width (the least, where it stretches).
        align: ``<`` or ``>``.
        rank: 0 is always shown; a column of a higher rank is left out earlier.
        stretch: weight with which it takes the space that is left over.
        most: a stretching column grows no further.
    """

    key: str
    title: str
    cells: int
    align: str = "<"
    rank: int = 0
    stretch: int = 0
    most: int = 200


GAP = 2


def layout(columns: Sequence[Column], cells: int) -> list[tuple[Column, int]]:
    """The columns that fit into `cells`, in order, each with its width."""
    chosen = list(columns)
    while len(chosen) > 1 and sum(c.cells + GAP for c in chosen) - GAP > cells:
        worst = max(range(len(chosen)), key=lambda i: (chosen[i].rank, i))
        if chosen[worst].rank == 0:
            break
        del chosen[worst]
    spare = max(0, cells - sum(c.cells + GAP for c in chosen) + GAP)
    weight = sum(c.stretch for c in chosen)
    placed = []
    for column in chosen:
        extra = spare * column.stretch // weight if weight else 0
        placed.append((column, min(column.most, column.cells + extra)))
    return placed


def header(placed: Iterable[tuple[Column, int]], cells: int) -> Row:
    """The headings."""
    titles = [pad(column.title, size, column.align) for column, size in placed]
    return fit([((" " * GAP).join(titles), "faint")], cells)


def record(
    placed: Iterable[tuple[Column, int]], values: Mapping[str, Sequence[Span]], cells: int
) -> Row:
    """One record; each value is a few spans, cut or filled to its column."""
    spans: list[Span] = []
    for column, size in placed:
        value = values.get(column.key, ())
        free = size - row_width(value)
        if spans:
            spans.append((" " * GAP, ""))
        if free > 0 and column.align == ">":
            value = ((" " * free, ""), *value)
        spans.extend(fit(value, size))
    return fit(spans, cells)
