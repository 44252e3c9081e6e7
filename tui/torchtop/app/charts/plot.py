"""Histories of several rows: filled columns with their peaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchtop.app.charts.glyphs import Glyphs
from torchtop.app.text import Row, Span


@dataclass(frozen=True)
class Bucket:
    """What one column of a chart stands for."""

    mean: float
    peak: float


def buckets(values: Sequence[float], count: int, per_bucket: int, total: int) -> list[Bucket]:
    """Values gathered into at most `count` columns.

    Columns begin at multiples of `per_bucket` counted from the start of the run, so a column never
    changes once it is full: the chart scrolls and does not shimmer.

    Args:
        values: the last values, oldest first.
        count: columns.
        per_bucket: values a column.
        total: how many values there were since the start, the last of `values` included.
    """
    first = max(total - len(values), 0)
    groups: dict[int, list[float]] = {}
    for offset, value in enumerate(values):
        groups.setdefault((first + offset) // per_bucket, []).append(value)
    if len(groups) > 1 and len(groups[min(groups)]) < per_bucket:
        del groups[min(groups)]  # begun before the first value: its mean would be of a few
    last = sorted(groups)[-count:]
    return [Bucket(sum(groups[k]) / len(groups[k]), max(groups[k])) for k in last]


def nice_ceiling(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten: a scale that seldom moves."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    for step in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0):
        if value <= step * scale * 1.0001:
            return step * scale
    return 10.0 * scale


def columns(
    series: Sequence[Bucket | None],
    cells: int,
    rows: int,
    high: float,
    *,
    glyphs: Glyphs,
    style: str,
    peak_style: str,
) -> list[Row]:
    """A filled chart of `rows` by `cells`, newest at the right; peaks above the mean are dim.

    Args:
        series: one entry a column, oldest first; None draws nothing.
        cells: width.
        rows: height.
        high: the value of the top edge.
        glyphs: what to draw with.
        style: of the columns.
        peak_style: of what reaches above them; ``<style>.on_peak`` is a column's edge before it.
    """
    shown = list(series[-cells:])
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * (cells - len(shown)) for _ in range(rows)]
    for bucket in shown:
        for row in range(rows):
            floor = (rows - 1 - row) / rows
            mean, peak = _levels(bucket, floor, rows, high, len(glyphs.columns) - 1)
            edge = style if peak < len(glyphs.columns) - 1 or mean == peak else style + ".on_peak"
            drawn = (glyphs.columns[mean], edge) if mean else (glyphs.columns[peak], peak_style)
            grid[row].append(drawn if mean or peak else (" ", ""))
    return [_merge(line) for line in grid]


def _levels(
    bucket: Bucket | None, floor: float, rows: int, high: float, last: int
) -> tuple[int, int]:
    """How far mean and peak fill a cell whose lower edge is at `floor` (0..1 of the chart)."""
    if bucket is None or high <= 0:
        return 0, 0
    mean = round((bucket.mean / high - floor) * rows * last)
    peak = round((bucket.peak / high - floor) * rows * last)
    if floor == 0:
        mean = max(1, mean)
    return max(0, min(last, mean)), max(0, min(last, peak))


def _merge(line: list[tuple[str, str]]) -> Row:
    spans: list[Span] = []
    for text, style in line:
        if spans and (spans[-1][1] == style or text == " "):
            spans[-1] = (spans[-1][0] + text, spans[-1][1])
        else:
            spans.append((text, style))
    return tuple(spans)
