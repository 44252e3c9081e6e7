"""Runs that ended before there could be a verdict, and how long they would have to be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.diagnose.thresholds import DEFAULT
from torchtop.experiment.plan import Plan

_LATER_S = 2.0
"""The analyst looks once a second, and the first steps of a run are often slower."""

_MOST_NAMED = 3


def note(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """What a reader must know of cells whose runs were too short for verdicts; None without any.

    Args:
        plan: the sweep.
        rows: its cells as they are in ``sweep.json``.
    """
    measured = [row for row in rows if row["step_ms"] is not None]
    short = [row for row in measured if is_short(row["verdict"])]
    if not short:
        return None
    which = "" if len(short) == len(measured) else f" of {_named(short)}"
    steps = _steps_needed(plan, min(row["step_ms"]["median"] for row in short))
    longest_s = max(row["step_ms"]["median"] for row in short) * DEFAULT.window_steps / 1e3
    enough = max(longest_s, DEFAULT.window_s + _LATER_S)
    instead = f"give --steps {steps} or more"
    if plan.settings.steps is not None and enough <= plan.settings.seconds:
        seconds = f"{plan.settings.seconds:g}"
        instead = f"leave out --steps (runs of {seconds} s), or {instead}"
    need = f"{DEFAULT.window_steps} steps and {DEFAULT.window_s:.0f} s"
    return f"the runs{which} were too short for verdicts, which take {need}: {instead}"


def is_short(verdict: Any) -> bool:
    """Whether a run's verdict only says that there were not enough steps for one.

    Such an UNDECIDED stood for no time at all; runs of older releases do not tell how long.
    """
    if not isinstance(verdict, Mapping):
        return False
    return verdict.get("kind") == "UNDECIDED" and verdict.get("seconds") == 0


def _named(rows: Sequence[Mapping[str, Any]]) -> str:
    """Cells by their labels, or how many they are."""
    if len(rows) > _MOST_NAMED:
        return f"{len(rows)} cells"
    return "; ".join(str(row["label"]) for row in rows)


def _steps_needed(plan: Plan, step_ms: float) -> int:
    """About how many measured steps a verdict takes, in two digits; `step_ms` is one of them."""
    within = math.ceil((DEFAULT.window_s + _LATER_S) * 1e3 / step_ms) if step_ms else 0
    missing = max(0, DEFAULT.warmup_steps - plan.settings.warmup)
    steps = max(DEFAULT.window_steps, within) + missing
    scale = int(10 ** max(0, len(str(steps)) - 2))
    return math.ceil(steps / scale) * scale
