"""A comparison of two sessions as rows."""

from __future__ import annotations

from torchtop.app.charts.table import Column, header, layout, record
from torchtop.app.format import NA
from torchtop.app.text import Row, Span, clean, wrap
from torchtop.session.compare import Comparison
from torchtop.session.compare import Row as Figure
from torchtop.session.values import child

_COLUMNS = (
    Column("title", "", 22),
    Column("a", "A", 9, align=">"),
    Column("b", "B", 9, align=">"),
    Column("change", "B to A", 9, align=">"),
    Column("between", "99 % interval", 17, align=">", rank=2),
    Column("call", "", 16, rank=1),
)
_FACTS = (
    Column("name", "differs", 22),
    Column("a", "A", 22, stretch=1, most=50),
    Column("b", "B", 22, stretch=1, most=50),
)
_CALLS = {
    "better": ("better", "ok"),
    "worse": ("worse", "critical"),
    "changed": ("changed", "note"),
    "same": ("within the noise", "dim"),
    "unclear": ("cannot tell", "dim"),
    "unknown": ("noise unknown", "dim"),
    "missing": (NA, "faint"),
}


def compared_rows(comparison: Comparison, width: int) -> list[Row]:
    """Both sides, all figures, what is known of the noise, what differs, and the verdicts."""
    rows: list[Row] = []
    for side in comparison.sides:
        named = f"{clean(side.name, 60)}  {clean(side.runs[0].paths.id, 100)}"
        rows.append(((f"{side.letter}  ", "key"), (named, "value")))
    rows.append(())
    placed = layout(_COLUMNS, width)
    rows.append(header(placed, width))
    rows += [
        record(placed, _cells(figure, figure is comparison.rows[0]), width)
        for figure in comparison.rows
        if any(value is not None and value >= 0.005 for value in figure.values)
    ]
    rows += [(), *_noise(comparison, width)]
    if comparison.differing:
        placed = layout(_FACTS, width)
        rows += [(), header(placed, width)]
        for name, values in comparison.differing.items():
            cells: dict[str, list[Span]] = {"name": [(clean(name, 60), "")]}
            for key, value in zip("ab", values, strict=False):
                cells[key] = [(clean(value, 100) if value is not None else NA, "value")]
            rows.append(record(placed, cells, width))
    return [*rows, (), *_verdicts(comparison, width)]


def _cells(figure: Figure, is_speed: bool) -> dict[str, list[Span]]:
    (finding,) = figure.findings
    word, style = _CALLS[finding.call]
    if is_speed:
        word = {"better": "faster", "worse": "slower"}.get(word, word)
    difference = finding.difference
    change, between = NA, NA
    if difference is not None:
        change = _percent(difference.relative)
        if difference.low is not None and difference.high is not None:
            between = f"{_percent(difference.low)} {_percent(difference.high)}"
    return {
        "title": [(figure.measure.title, "")],
        "a": [(_value(figure.values[0]), "")],
        "b": [(_value(figure.values[1]), "value")],
        "change": [(change, style if finding.call in ("better", "worse") else "")],
        "between": [(between, "dim")],
        "call": [(word, style)],
    }


def _value(value: float | None) -> str:
    if value is None:
        return NA
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _percent(share: float) -> str:
    value = share * 100
    if abs(value) >= 10_000:
        return ">+9999 %" if value > 0 else "-100 %"
    return f"{value:+.0f} %" if abs(value) >= 100 else f"{value:+.1f} %"


def _noise(comparison: Comparison, width: int) -> list[Row]:
    told = []
    if comparison.floor:
        floor = comparison.floor
        told.append(f"noise: a run strays by {floor.noise.share:.1%} (from {floor.source})")
    lines = [line for text in (*told, *comparison.notes) for line in wrap(clean(text), width, 5)]
    return [((line, "dim"),) for line in lines]


def _verdicts(comparison: Comparison, width: int) -> list[Row]:
    rows: list[Row] = []
    for side in comparison.sides:
        verdict = child(side.runs[0].summary, "verdict")
        told = f"{verdict.get('kind') or 'no verdict'}: {verdict.get('headline') or ''}"
        for place, line in enumerate(wrap(clean(told.rstrip(": "), 400), width - 3, 3)):
            rows.append(((f"{side.letter}  " if not place else "   ", "key"), (line, "")))
    return rows
