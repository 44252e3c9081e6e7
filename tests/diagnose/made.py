"""Hand-made rows, steps, windows and facts."""

from __future__ import annotations

from typing import Any

from torchtop.diagnose.frontier import FRONTIER_PHASES, LOCAL_PHASES, FrontierStep, Row, account
from torchtop.diagnose.thresholds import DEFAULT, Thresholds
from torchtop.diagnose.window import Window, summarise


def row(step: int = 20, exposed: int = 0, at_ns: int | None = None, **values: Any) -> Row:
    """A row: phases by name in microseconds, other columns by their own names."""
    phases = {name: values.pop(name, 0) for name in LOCAL_PHASES}
    total = sum(phases.values()) + exposed
    values.setdefault("host_us", total)
    return Row(
        step=step,
        end_ns=step * 1_000_000_000 if at_ns is None else at_ns,
        local_us=tuple(phases[name] for name in LOCAL_PHASES),
        exposed_us=exposed,
        unknown=values.pop("unknown", ()),
        **values,
    )


def by_phase(step: FrontierStep) -> dict[str, int]:
    """What each phase adds to a step, where it adds something."""
    pairs = zip(FRONTIER_PHASES, step.frontier_us, strict=True)
    return {phase: value for phase, value in pairs if value}


def window(
    *ranks: dict[str, Any], steps: int = 20, cuda: bool = True, limits: Thresholds = DEFAULT
) -> Window:
    """A window of equal steps, from each rank's phases; half a second a step."""
    made = [
        account([row(step, at_ns=step * 500_000_000, **values) for values in ranks])
        for step in range(20, 20 + steps)
    ]
    return summarise(made, cuda, limits)
