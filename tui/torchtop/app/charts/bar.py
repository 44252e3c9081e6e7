"""Horizontal bars: a meter, and the stacked phases of a step."""

from __future__ import annotations

from collections.abc import Sequence

from torchtop.app.charts.glyphs import Glyphs
from torchtop.app.text import Row, Span


def meter(
    share: float | None, cells: int, glyphs: Glyphs, style: str, track: str = "track"
) -> list[Span]:
    """A bar of `cells` filled to `share` (0..1); all track where it is unknown."""
    if cells <= 0:
        return []
    whole, half = divmod(round(max(0.0, min(1.0, share or 0.0)) * cells * 2), 2)
    filled = glyphs.full * whole + glyphs.half * half
    return [(filled, style), (glyphs.track * (cells - whole - half), track)]


def largest_remainder(amounts: Sequence[float], cells: int) -> list[int]:
    """Whole cells for amounts so that they sum to exactly `cells` (none when all are 0)."""
    total = sum(amounts)
    if total <= 0 or cells <= 0:
        return [0] * len(amounts)
    exact = [amount / total * cells for amount in amounts]
    whole = [int(value) for value in exact]
    rest = sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])
    for index in rest[: cells - sum(whole)]:
        whole[index] += 1
    return whole


def stacked(
    parts: Sequence[tuple[str, str, float]], cells: int, scale: float, textured: bool
) -> Row:
    """A stacked bar; each part begins with its letter, so that colour is not needed to read it.

    Args:
        parts: (letter, style, amount); drawn in order.
        cells: the width that stands for `scale`.
        scale: the amount of a full bar.
        textured: fill with the letter in lower case (no colour to tell the parts apart).
    """
    total = sum(amount for _, _, amount in parts)
    length = min(cells, round(total / scale * cells)) if scale > 0 else 0
    widths = largest_remainder([amount for _, _, amount in parts], length)
    spans: list[Span] = []
    for (letter, style, _), size in zip(parts, widths, strict=True):
        if size:
            fill = letter.lower() if textured else " "
            spans.append((letter + fill * (size - 1), style))
    return (*spans, (" " * (cells - length), ""))
