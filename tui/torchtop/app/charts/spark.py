"""One-row histories."""

from __future__ import annotations

from collections.abc import Sequence

from torchtop.app.charts.glyphs import Glyphs


def spark(
    values: Sequence[float | None],
    cells: int,
    glyphs: Glyphs,
    low: float = 0.0,
    high: float | None = None,
) -> str:
    """The last `cells` values as columns, newest at the right; a gap where one is missing.

    Args:
        values: oldest first.
        cells: width of the result.
        glyphs: what to draw with.
        low: the value of an empty column.
        high: the value of a full column; the largest shown value when omitted.
    """
    if cells <= 0:
        return ""
    shown = list(values[-cells:])
    top = high if high is not None else max((v for v in shown if v is not None), default=1.0)
    span = (top - low) or 1.0
    drawn = "".join(
        " " if value is None else _column((value - low) / span, glyphs.columns) for value in shown
    )
    return drawn.rjust(cells)


def _column(level: float, columns: str) -> str:
    """A value that is there never draws as nothing: an idle GPU differs from an unknown one."""
    last = len(columns) - 1
    return columns[max(1, min(last, round(level * last)))]
