"""Which cell is measured next, and when there is nothing left to measure. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from torchtop.experiment.plan import Cell, Plan

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""By cell, what has been run, in order."""


def measured(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The measurements among the runs of a cell."""
    return [run["measured"] for run in runs if run.get("measured")]


def failed(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The run that failed, if one did."""
    return next((run for run in runs if run.get("status") in ("failed", "lost")), None)


def throughputs(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """What each measurement is worth: samples, or where those are not known steps, a second."""
    return [run.get("samples_per_s") or 1e3 / run["step_ms"] for run in measured(runs)]


def spread(values: Sequence[float]) -> float | None:
    """How far values lie apart, as a share of their median; None for fewer than two."""
    if len(values) < 2 or not median(values):
        return None
    return (max(values) - min(values)) / median(values)


def is_settled(cell: Cell, plan: Plan, runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a cell needs no more runs: there are enough, or they are close together."""
    values = throughputs(runs)
    settings = plan.settings
    if cell.place.skip is not None or failed(runs) is not None:
        return True
    if len(values) >= settings.repeats:
        return True
    apart = spread(values)
    return len(values) >= settings.enough and apart is not None and apart <= settings.spread


def waiting(plan: Plan, runs: Runs) -> list[Cell]:
    """The cells that need more runs, in the order of the plan."""
    needed = {
        cell.reference
        for cell in plan.cells
        if cell.place.skip is None and failed(runs.get(cell.id, ())) is None
    }
    return [
        cell
        for cell in plan.cells
        if not is_settled(cell, plan, runs.get(cell.id, ()))
        and (cell.role == "asked" or cell.id in needed)
    ]


def next_cell(plan: Plan, runs: Runs) -> Cell | None:
    """The cell to run next: ABAB rather than AABB, so that a drift of the machine cancels."""
    return min(
        waiting(plan, runs), key=lambda cell: len(measured(runs.get(cell.id, ()))), default=None
    )


def runs_left(plan: Plan, runs: Runs) -> int:
    """How many runs there are still to make, at the most."""
    left = (plan.settings.repeats - len(measured(runs.get(c.id, ()))) for c in waiting(plan, runs))
    return sum(left)


def eta_s(plan: Plan, runs: Runs) -> float | None:
    """How long these will take, at the most; None before a run has ended."""
    walls = {
        cell: [run["wall_s"] for run in made if isinstance(run.get("wall_s"), (int, float))]
        for cell, made in runs.items()
    }
    every = [wall for known in walls.values() for wall in known]
    if not every:
        return None
    left = 0.0
    for cell in waiting(plan, runs):
        missing = plan.settings.repeats - len(measured(runs.get(cell.id, ())))
        left += missing * fmean(walls.get(cell.id) or every)
    return left
