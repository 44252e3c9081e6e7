"""``sweep.json``: the table of a sweep, made anew from its plan and its runs. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from torchtop.experiment import schedule, too_short
from torchtop.experiment.accounting import Measured, explain
from torchtop.experiment.costs import Costs, combine
from torchtop.experiment.plan import Cell, Plan
from torchtop.experiment.schedule import Runs
from torchtop.session.records import PHASES
from torchtop.session.sweeps import SCHEMA

_TOGETHER = ("host", "driver", "gpu")
"""What must be the same for all cells, or be told."""


def build(
    plan: Plan, runs: Runs, status: str, running: str | None = None, **more: Any
) -> dict[str, Any]:
    """The table as it stands; its shape is in `torchtop.session.sweeps`.

    Args:
        plan: the sweep.
        runs: what has been run.
        status: running, stopped or done.
        running: id of the cell that is being measured.
        **more: id, created_at, updated_at, host and session.
    """
    rows = [_row(cell, plan, runs.get(cell.id, ()), running) for cell in plan.cells]
    by_id = {row["id"]: row for row in rows}
    known = {cell.id: _measured(cell, by_id[cell.id]) for cell in plan.cells}
    first = next((r for r in rows if r["role"] == "asked" and _rate(r) is not None), None)
    for cell, row in zip(plan.cells, rows, strict=True):
        relative = _ratio(_rate(row), _rate(first) if first else None)
        row.update(_scaling(cell, row, by_id, known), relative=relative)
    return {
        "schema": SCHEMA,
        "id": more.get("id"),
        "workload": plan.workload,
        "command": list(plan.command),
        "created_at": more.get("created_at"),
        "updated_at": more.get("updated_at"),
        "status": status,
        "host": more.get("host"),
        "device": plan.device,
        "settings": {
            name: getattr(plan.settings, name)
            for name in ("steps", "seconds", "warmup", "repeats", "spread")
        },
        "axes": [{"name": axis.name, "values": list(axis.values)} for axis in plan.axes],
        "fixed": dict(plan.fixed),
        "progress": {
            "runs_done": sum(len(schedule.measured(made)) for made in runs.values()),
            "runs_left": schedule.runs_left(plan, runs),
            "eta_s": schedule.eta_s(plan, runs),
            "session": more.get("session"),
        },
        "cells": rows,
        "notes": _notes(plan, rows),
    }


def _row(
    cell: Cell, plan: Plan, runs: Sequence[Mapping[str, Any]], running: str | None
) -> dict[str, Any]:
    """What is known of a cell by itself."""
    made = schedule.measured(runs)
    failed = schedule.failed(runs)
    settled = schedule.is_settled(cell, plan, runs)
    batch = _last(made, "batch")
    ranks = _last(made, "world_size")
    devices = cell.devices or ranks
    return {
        "id": cell.id,
        "label": cell.label,
        "role": cell.role,
        "axes": dict(cell.axes),
        "gpus": devices,
        "nproc": cell.place.nproc or ranks,
        "parallel": cell.place.parallel,
        "options": dict(cell.options),
        "python": cell.python,
        "status": _status(cell, made, failed, running),
        "settled": settled,
        "reason": cell.place.skip or (failed or {}).get("reason"),
        "runs": [dict(run) for run in runs],
        "batch": batch if batch is not None else cell.place.batch,
        "batch_per_gpu": batch / devices if batch is not None and devices else None,
        "samples_per_s": _several(made, "samples_per_s"),
        "tokens_per_s": _several(made, "tokens_per_s"),
        "step_ms": _several(made, "step_ms"),
        "p50_ms": _median(made, "p50_ms"),
        "p95_ms": _median(made, "p95_ms"),
        "verdict": _typical(made).get("verdict"),
        "phases": _phases(made),
        "energy_j_per_1000_samples": _median(made, "energy_j_per_1000_samples"),
        "power_w": _median(made, "power_w"),
        "memory_peak_bytes": max(_known(made, "memory_peak_bytes"), default=None),
        "first_steps_s": _median(made, "first_steps_s"),
        "versions": dict(_last(made, "versions") or {}),
        "training_loss": fmean(losses) if (losses := _known(made, "training_loss")) else None,
    }


def _status(
    cell: Cell,
    made: Sequence[Mapping[str, Any]],
    failed: Mapping[str, Any] | None,
    running: str | None,
) -> str:
    if cell.place.skip is not None:
        return "skipped"
    if cell.id == running:
        return "running"
    if made:
        return "measured"
    return "failed" if failed is not None else "waiting"


def _known(made: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [run[name] for run in made if run.get(name) is not None]


def _last(made: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((run[name] for run in reversed(made) if run.get(name) is not None), None)


def _median(made: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = _known(made, name)
    return median(values) if values else None


def _several(made: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """A number that each run has: its median over the runs, and how far they lie apart."""
    values = _known(made, name)
    if not values:
        return None
    return {
        "median": median(values),
        "low": min(values),
        "high": max(values),
        "spread": schedule.spread(values),
        "runs": len(values),
    }


def _typical(made: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run whose step is nearest to the median."""
    if not made:
        return {}
    middle = median(run["step_ms"] for run in made)
    return min(made, key=lambda run: abs(run["step_ms"] - middle))


def _phases(made: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    if not made:
        return {}
    return {
        phase: fmean(values)
        if (
            values := [v for run in made if (v := (run.get("phases") or {}).get(phase)) is not None]
        )
        else None
        for phase in PHASES
    }


# -------------------------------------------------------------------------------------- scaling
def _measured(cell: Cell, row: Mapping[str, Any]) -> Measured | None:
    """A cell as the accounting sees it; None where too little is known."""
    made = schedule.measured(row["runs"])
    costs = [c for run in made if (c := Costs.from_json(run.get("costs"))) is not None]
    batch, rate = row["batch"], _rate(row)
    if not costs or batch is None or not rate or cell.devices is None:
        return None
    whole = combine(costs, batch / rate * 1e3)
    if whole is None:
        return None
    return Measured(cell.id, whole, batch, cell.devices, cell.place.parallel)


def _scaling(
    cell: Cell,
    row: Mapping[str, Any],
    rows: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Measured | None],
) -> dict[str, Any]:
    """Speed-up against the cell's base, and where the rest went."""
    scaling: dict[str, Any] = dict.fromkeys(("speedup", "ideal", "efficiency", "loss"))
    scaling["base"] = cell.base
    if cell.base is None:
        is_base = row["status"] != "skipped" and cell.role == "asked"
        if is_base and _rate(row) is not None:
            scaling |= {"speedup": 1.0, "ideal": 1.0, "efficiency": 1.0}
        return scaling
    base = rows[cell.base]
    scaling["ideal"] = cell.devices / base["gpus"]
    scaling["speedup"] = _ratio(_rate(row), _rate(base))
    scaling["efficiency"] = _ratio(scaling["speedup"], scaling["ideal"])
    one, this = known[cell.base], known[cell.id]
    if one is not None and this is not None:
        scaling["loss"] = explain(one, known.get(cell.reference or ""), this)
    return scaling


def _rate(row: Mapping[str, Any]) -> float | None:
    rate = row["samples_per_s"]
    return None if rate is None else rate["median"]


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


# ---------------------------------------------------------------------------------------- notes
def _notes(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader must know to take the table for what it is."""
    notes = []
    for name in _TOGETHER:
        seen = {
            value
            for row in rows
            for run in row["runs"]
            if run.get("measured")
            and (value := run.get(name) or run["measured"]["versions"].get(name)) is not None
        }
        if len(seen) > 1:
            names = ", ".join(sorted(map(str, seen)))
            notes.append(f"the runs differ in their {name}: {names}")
    single = [row["label"] for row in rows if len(schedule.measured(row["runs"])) == 1]
    if single:
        notes.append("one run says nothing about its own noise: " + "; ".join(single))
    if told := too_short.note(plan, rows):
        notes.append(told)
    return notes
