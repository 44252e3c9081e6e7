"""The step: where its time goes, on the frontier and on each rank, and how it varies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.app.charts.bar import stacked
from torchtop.app.charts.plot import buckets, columns, nice_ceiling
from torchtop.app.format import known, ms, ms_number, percent
from torchtop.app.panes.parts import (
    PHASE_LETTERS,
    PHASE_NAMES,
    PHASE_SHORT,
    SHOWN_PHASES,
    child,
    records,
    verdict_of,
)
from torchtop.app.panes.silence import Silence, silences, words
from torchtop.app.text import Row, Span, clean, fit, pad
from torchtop.app.view import View
from torchtop.session.state import Snapshot

_LABEL, _TAIL = 5, 9
_SHOWN_SHARE = 0.005
_CAPTION_FROM = 5
"""Rows from which on the latency chart says what it is."""

_OWN_FROM = 2
"""Rows that must be left for the script's own phases to be told."""


def aside(view: View, width: int) -> list[Span]:
    """The spread of the latency."""
    figures = child(view.snapshot.analysis if view.snapshot else None, "step_ms")
    if known(figures.get("p50")) is None:
        return []
    spans: list[Span] = []
    for name in ("p50", "p95", "p99") if width > 44 else ("p50", "p99"):
        spans += [(f"{name} ", "dim"), (ms_number(figures.get(name)), ""), ("  ", "")]
    spans[-1] = (" ms", "dim")
    return spans


def body(view: View, width: int, height: int) -> list[Row]:
    """Frontier, legend, ranks, then the latency in what room there is."""
    snapshot = view.snapshot
    analysis = snapshot.analysis if snapshot else None
    if snapshot is None or not analysis or not child(analysis, "phases"):
        waiting = "no step yet" if snapshot and snapshot.live else "no steps"
        return [fit([(waiting, "dim")], width), *_silent(snapshot, width, height - 1)]
    phases = child(analysis, "phases")
    frontier = {name: known(child(phases, name).get("ms")) or 0.0 for name in SHOWN_PHASES}
    ranks = records(analysis, "ranks")
    scale = max([sum(frontier.values()), *(_total(rank) for rank in ranks)], default=1.0) or 1.0
    rows = [_bar(view, "step", frontier, scale=scale, width=width, style="value")]
    rows += _legend(phases, width, height - len(rows))
    rows += _own(child(analysis, "own_phases"), width, height - len(rows))
    room = height - len(rows)
    chart = 0 if room < 4 else max(2, min(room - len(ranks), 12))
    rows += _ranks(view, snapshot, ranks, scale=scale, width=width, rows=room - chart)
    chart = height - len(rows)
    return rows + (latency(view, snapshot, width, chart) if chart >= 2 else [])


def _total(rank: Mapping[str, Any]) -> float:
    return sum(known(value) or 0.0 for value in child(rank, "phases").values())


def _bar(
    view: View, label: str, phases: Mapping[str, float], *, scale: float, width: int, style: str
) -> Row:
    parts = [(PHASE_LETTERS[n], f"phase.{n}", phases.get(n) or 0.0) for n in SHOWN_PHASES]
    bar = stacked(parts, width - _LABEL - _TAIL, scale, view.textured or view.glyphs.ascii)
    total = ms(sum(phases.get(n) or 0.0 for n in SHOWN_PHASES))
    return fit([(pad(label, _LABEL), "dim"), *bar, (pad(total, _TAIL, ">"), style)], width)


def _legend(phases: Mapping[str, Any], width: int, rows: int) -> list[Row]:
    """Each phase that matters, with its time and share, in columns."""
    shown = [name for name in SHOWN_PHASES if (_share(phases, name) or 0.0) >= _SHOWN_SHARE]
    if not shown or rows < 1:
        return []
    wide = (width + 2) // 30 >= 2
    names, mark = (PHASE_NAMES, " {} ") if wide else (PHASE_SHORT, "{}")
    longest = max(len(name) for name in names.values())
    cell = len(mark.format("")) + 1 + 1 + longest + 5 + 6 + 2
    across = max(1, (width + 2) // cell)
    lines = -(-len(shown) // across)
    if lines > rows:  # the smallest are left out
        shown = sorted(shown, key=lambda name: -(_share(phases, name) or 0.0))[: rows * across]
        shown.sort(key=SHOWN_PHASES.index)
        lines = rows
    legend = []
    for line in range(lines):
        spans: list[Span] = []
        for name in shown[line::lines]:
            spans += [
                (mark.format(PHASE_LETTERS[name]), f"phase.{name}"),
                (" " + pad(names[name], longest), ""),
                (pad(ms_number(child(phases, name).get("ms")), 5, ">"), ""),
                (pad(percent(_share(phases, name)), 6, ">"), "value"),
                ("  ", ""),
            ]
        legend.append(fit(spans[:-1], width))
    return legend


def _own(phases: Mapping[str, Any], width: int, rows: int) -> list[Row]:
    """The script's own phases in one line, the largest first: they lie within the others."""
    told = sorted(phases, key=lambda name: -(_share(phases, name) or 0.0))
    if not told or rows < _OWN_FROM:
        return []
    spans: list[Span] = [(pad("own", _LABEL), "dim")]
    for name in told:
        figures = f" {ms(child(phases, name).get('ms'))} {percent(_share(phases, name))}  "
        spans += [(clean(name, 40), ""), (figures, "value")]
    return [fit(spans, width)]


def _share(phases: Mapping[str, Any], name: str) -> float | None:
    return known(child(phases, name).get("share"))


def _ranks(
    view: View,
    snapshot: Snapshot,
    ranks: Sequence[Mapping[str, Any]],
    *,
    scale: float,
    width: int,
    rows: int,
) -> list[Row]:
    """A bar a rank; where not all fit, those that the verdict and the waits point at."""
    if len(ranks) < 2 or rows < 1:
        return _silent(snapshot, width, rows)
    chosen = choose(ranks, rows, (snapshot.exit or verdict_of(snapshot)).get("rank"))
    quiet = {silence.rank: silence for silence in silences(snapshot)}
    drawn = []
    for rank in chosen:
        number = rank.get("rank")
        if isinstance(number, int) and number in quiet:
            drawn.append(_silent_row(quiet[number], width))
            continue
        phases = {name: known(child(rank, "phases").get(name)) or 0.0 for name in SHOWN_PHASES}
        drawn.append(_bar(view, f"r{clean(number, 8)}", phases, scale=scale, width=width, style=""))
    return drawn


def choose(ranks: Sequence[Mapping[str, Any]], rows: int, named: object) -> list[Mapping[str, Any]]:
    """At most `rows` ranks, in order of rank: the named one, then those that wait least and most.

    The rank that waits least is the one that the others wait for.
    """
    if len(ranks) <= rows:
        return list(ranks)
    order = sorted(ranks, key=lambda rank: known(rank.get("wait_ms")) or 0.0)
    picked = [rank for rank in ranks if rank.get("rank") == named and named is not None]
    while order and len(picked) < rows:
        for end in (0, -1):
            if order and len(picked) < rows:
                rank = order.pop(end)
                if rank not in picked:
                    picked.append(rank)
    return sorted(picked[:rows], key=lambda rank: known(rank.get("rank")) or 0)


def _silent(snapshot: Snapshot | None, width: int, rows: int) -> list[Row]:
    return [_silent_row(silence, width) for silence in silences(snapshot)][: max(0, rows)]


def _silent_row(silence: Silence, width: int) -> Row:
    return fit(
        [(pad(f"r{silence.rank}", _LABEL), "dim"), (words(silence, width - _LABEL), "warn")], width
    )


def latency(view: View, snapshot: Snapshot, width: int, rows: int) -> list[Row]:
    """Latency of the last steps: each column's mean, its peak dim above it, percentiles at left."""
    recent = snapshot.recent_step_ms
    analysis = snapshot.analysis or {}
    figures = child(analysis, "step_ms")
    if not recent:
        return []
    cells = width - _LABEL - 1
    per = steps_per_column(len(recent), cells)
    total = int(known(analysis.get("steps")) or len(recent))
    shown = buckets(recent, cells, per, max(total, len(recent)))
    told = rows >= _CAPTION_FROM
    rows -= told
    caption = f"latency, {per} step{'s' if per > 1 else ''} a column"
    caption += ": mean, peaks behind" if per > 1 and width > 60 else ""
    ordinary = known(figures.get("p95")) or max(b.mean for b in shown)
    high = nice_ceiling(max(ordinary * 1.15, *(b.mean for b in shown)))
    drawn = columns(
        shown, cells, rows, high, glyphs=view.glyphs, style="chart", peak_style="chart.peak"
    )
    labels = _axis(figures, high, rows)
    lines = [
        fit([(pad(label, _LABEL, ">") + " ", "faint"), *row], width)
        for label, row in zip(labels, drawn, strict=True)
    ]
    return [fit([(" " * (_LABEL + 1), ""), (caption, "faint")], width), *lines] if told else lines


def steps_per_column(steps: int, cells: int) -> int:
    """The power of two with which so many steps fit into a chart of `cells` columns.

    It follows from a count that only grows, so the chart never swings between two scales.
    """
    return int(2 ** max(0, math.ceil(math.log2(max(1, steps) / max(1, cells)))))


def _axis(figures: Mapping[str, Any], high: float, rows: int) -> list[str]:
    """Labels of the chart's rows: the scale at the top, percentiles where they lie."""
    labels = [""] * rows
    for name in ("p99", "p95", "p50"):
        value = known(figures.get(name))
        if value is not None and value <= high:
            labels[min(rows - 1, int((1 - value / high) * rows))] = name
    if not labels[0]:
        labels[0] = ms_number(high)
    return labels
