"""Sides against the first of them: every figure, and whether its difference exceeds the noise.

A comparison is decided by its throughput, which was chosen before anything was measured. The other
figures are looked at together, so each must stand out the more (`noise.holm`).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torchtop.session import noise
from torchtop.session.floor import LEAST_STEPS, Floor, History, values
from torchtop.session.load import Loaded
from torchtop.session.measures import Measure, measures
from torchtop.session.paths import SessionError
from torchtop.session.records import SCHEMA
from torchtop.session.sides import Side, differing, facts
from torchtop.session.values import child

Call = Literal["better", "worse", "changed", "same", "unclear", "unknown", "missing"]


@dataclass(frozen=True)
class Finding:
    """One figure of one side against the first side.

    Attributes:
        side: which side is compared.
        difference: None where a side has no value, or one of 0.
        call: better, worse or (where neither is) changed: it exceeds the noise; same: it does not;
            unclear: there is too much noise, or too few runs tell it, or one of so many figures
            may stand out by chance;
            unknown: nothing is known of the noise; missing: there is nothing to compare.
    """

    side: Side
    difference: noise.Difference | None
    call: Call


@dataclass(frozen=True)
class Row:
    """One figure of all sides.

    Attributes:
        measure: which.
        values: the geometric mean of each side's runs, or their mean where one is not above 0.
        findings: of each side but the first.
    """

    measure: Measure
    values: tuple[float | None, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Comparison:
    """All that is known of how sides differ."""

    sides: tuple[Side, ...]
    rows: tuple[Row, ...]
    floor: Floor | None
    """The noise of one run's throughput; None where it is not known."""
    differing: dict[str, list[str | None]]
    notes: tuple[str, ...]

    def row(self, key: str) -> Row:
        """The row of one measure."""
        return next(row for row in self.rows if row.measure.key == key)


def compare(sides: Sequence[Side], notes: Sequence[str] = ()) -> Comparison:
    """Compare every side with the first.

    Args:
        sides: at least two.
        notes: what has to be said already.

    Raises:
        SessionError: a side was never measured.
    """
    for side in sides:
        for run in side.runs:
            if not run.measured_steps:
                raise SessionError(
                    f"{run.paths.id} has nothing to compare: it has no step after its warm-up"
                )
    history = History(sides)
    rows = [_row(m, sides, history) for m in measures([r.summary for s in sides for r in s.runs])]
    floor = history.floor(rows[0].measure)
    return Comparison(
        tuple(sides),
        (_called(rows[:1]) + _called(rows[1:])),
        floor,
        differing(sides),
        (*notes, *_remarks(sides, floor)),
    )


def _row(measure: Measure, sides: Sequence[Side], history: History) -> Row:
    columns = [values(measure, side.runs) for side in sides]
    floor = None
    if any(len(column) < noise.LEAST_REPEATS for column in columns):
        floor = history.floor(measure)
    shared = floor.noise if floor else None
    return Row(
        measure,
        tuple(_middle(column) for column in columns),
        tuple(
            Finding(side, noise.compare(columns[0], column, shared, measure.resolution), "unknown")
            for side, column in zip(sides[1:], columns[1:], strict=True)
        ),
    )


def _middle(column: Sequence[float]) -> float | None:
    if not column:
        return None
    if len(column) == 1:
        return column[0]
    if min(column) > 0:  # differences are those of logarithms: the figures shown must fit them
        return statistics.geometric_mean(column)
    return statistics.fmean(column)


def _called(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with their calls: all differences in them are looked at together."""
    p_values = [f.difference.p_value if f.difference else None for r in rows for f in r.findings]
    answers = iter(noise.holm(p_values))
    return tuple(
        Row(
            row.measure,
            row.values,
            tuple(
                Finding(f.side, f.difference, _call(row.measure, f.difference, next(answers)))
                for f in row.findings
            ),
        )
        for row in rows
    )


def _call(measure: Measure, difference: noise.Difference | None, real: bool | None) -> Call:
    if difference is None:
        return "missing"
    if real is None:
        return "unknown"
    if not real:
        by_chance = difference.p_value is not None and difference.p_value <= noise.SIGNIFICANCE
        return "unclear" if difference.blind or by_chance else "same"
    if not measure.better:
        return "changed"
    return "better" if difference.relative * measure.better > 0 else "worse"


def _remarks(sides: Sequence[Side], floor: Floor | None) -> list[str]:
    """What limits the comparison."""
    said = []
    if floor is None:
        said.append(
            "there are neither repeats nor earlier sessions of this workload: a single run may "
            "differ from the next by several per cent, so no difference here is told as real; "
            "give repeats: torchtop compare A,A2,A3 B,B2,B3"
        )
    elif floor.noise.freedom < 3 and min(len(side.runs) for side in sides) < noise.LEAST_REPEATS:
        said.append(
            f"the noise is known from {floor.noise.runs} runs only: only a large difference can be "
            f"told; {noise.LEAST_REPEATS} repeats a side are better"
        )
    for run in (run for side in sides for run in side.runs):
        if run.running:
            said.append(f"{run.paths.id} is running: its figures are those so far")
        elif run.summary.get("problem"):
            said.append(f"{run.paths.id} is incomplete: {run.summary['problem']}")
        elif run.measured_steps < LEAST_STEPS:
            said.append(
                f"{run.paths.id} has {run.measured_steps} steps after its warm-up: too few for its "
                "mean to be sharp"
            )
    return said


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for programs; shares are 0..1, missing values null."""
    floor = comparison.floor
    return {
        "schema": SCHEMA,
        "significance": noise.SIGNIFICANCE,
        "sides": [_side_json(side) for side in comparison.sides],
        "noise": floor
        and {
            "share": floor.noise.share,
            "degrees_of_freedom": floor.noise.freedom,
            "runs": floor.noise.runs,
            "source": floor.source,
        },
        "measures": [_row_json(row) for row in comparison.rows],
        "differing": comparison.differing,
        "notes": list(comparison.notes),
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "side": side.letter,
        "name": side.name,
        "facts": dict(facts(side.runs[0])),
        "sessions": [_run_json(run) for run in side.runs],
    }


def _run_json(run: Loaded) -> dict[str, Any]:
    verdict = child(run.summary, "verdict")
    return {
        "id": run.paths.id,
        "directory": str(run.paths.root),
        "status": "running" if run.running else run.summary.get("status"),
        "measured_steps": run.measured_steps,
        "verdict": {key: verdict.get(key) for key in ("kind", "share", "rank", "phase", "headline")}
        if verdict
        else None,
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "measure": row.measure.key,
        "title": row.measure.title,
        "better": {1: "more", -1: "less", 0: None}[row.measure.better],
        "values": list(row.values),
        "differences": [
            {
                "side": finding.side.letter,
                "relative": finding.difference and finding.difference.relative,
                "interval": _interval(finding.difference),
                "p_value": finding.difference and finding.difference.p_value,
                "call": finding.call,
            }
            for finding in row.findings
        ],
    }


def _interval(difference: noise.Difference | None) -> list[float] | None:
    if difference is None or difference.low is None or difference.high is None:
        return None
    return [difference.low, difference.high]
