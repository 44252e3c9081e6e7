"""In which order cells are measured, and when they have been measured enough."""

from __future__ import annotations

from typing import Any

import pytest

from experiment.test_plan import cells
from torchtop.experiment import schedule
from torchtop.experiment.plan import Cell, Plan, Settings
from torchtop.experiment.runner import Limit, limit_of


def plan_of(made: dict[str, Cell], **settings: Any) -> Plan:
    return Plan("w", "cuda", "/", (), (), {}, tuple(made.values()), Settings(**settings))


def run(rate: float, wall_s: float = 30.0) -> dict[str, Any]:
    measured = {"samples_per_s": rate, "step_ms": 1e3 / rate, "steps": 300}
    return {"session": "s", "status": "done", "wall_s": wall_s, "measured": measured}


FAILED = {"session": "s", "status": "failed", "reason": "no", "wall_s": 5.0, "measured": None}
STOPPED = {"session": "s", "status": "stopped", "reason": None, "measured": None}


def order(plan: Plan, rates: dict[str, list[Any]]) -> list[str]:
    """The cells in the order of their runs, each run giving the next of its cell's rates."""
    runs: dict[str, list[dict[str, Any]]] = {}
    done = []
    while (cell := schedule.next_cell(plan, runs)) is not None:
        made = runs.setdefault(cell.id, [])
        given = rates[cell.id][len(made)]
        made.append(run(given) if isinstance(given, (int, float)) else given)
        done.append(cell.id)
    return done


def test_cells_take_turns_so_that_a_drift_cancels() -> None:
    plan = plan_of(cells((1, 2), batch_per_gpu="8"), repeats=3)

    turns = order(plan, {"gpus=1": [1, 2, 3], "gpus=2": [1, 2, 3]})
    assert turns == ["gpus=1", "gpus=2"] * 3


def test_a_cell_stops_early_when_its_runs_are_close_together() -> None:
    plan = plan_of(cells((1, 2), batch_per_gpu="8"), repeats=5, spread=0.02)

    turns = order(plan, {"gpus=1": [100, 101, 100.5], "gpus=2": [100, 110, 105, 108, 101]})
    assert turns.count("gpus=1") == 3
    assert turns.count("gpus=2") == 5


def test_two_runs_that_happen_to_agree_are_not_enough() -> None:
    plan = plan_of(cells((1,)), repeats=5)

    assert order(plan, {"all": [100, 100, 120, 100, 100]}) == ["all"] * 5


def test_a_cell_that_fails_is_left_and_the_rest_goes_on() -> None:
    plan = plan_of(cells((1, 2)), repeats=2)
    reference = "gpus=1,batch_per_gpu=128"

    turns = order(plan, {"gpus=1": [1, 2], "gpus=2": [FAILED], reference: [1, 2]})
    # What it would have explained is not measured any more.
    assert turns == ["gpus=1", "gpus=2", "gpus=1"]


def test_a_run_that_was_stopped_is_made_again() -> None:
    plan = plan_of(cells((1,)), repeats=1)

    assert order(plan, {"all": [STOPPED, 5.0]}) == ["all", "all"]


def test_what_is_skipped_is_not_run() -> None:
    plan = plan_of(cells((1, 8)), repeats=1)

    assert order(plan, {"gpus=1": [1.0]}) == ["gpus=1"]


def test_the_time_that_is_left_is_what_such_runs_took() -> None:
    plan = plan_of(cells((1, 2), batch_per_gpu="8"), repeats=3)

    assert schedule.eta_s(plan, {}) is None
    assert schedule.runs_left(plan, {}) == 6
    runs = {"gpus=1": [run(1.0, 20.0)], "gpus=2": [run(1.0, 40.0)]}
    assert schedule.runs_left(plan, runs) == 4
    assert schedule.eta_s(plan, runs) == 2 * 20 + 2 * 40
    assert schedule.eta_s(plan, {"gpus=1": [run(1.0, 20.0)]}) == 2 * 20 + 3 * 20


@pytest.mark.parametrize(
    ("settings", "made", "limit"),
    [
        (Settings(), [], Limit(None, 10.0, 20)),
        (Settings(), [run(1.0)], Limit(20 + 301, 10.0, 20)),
        (Settings(steps=50, warmup=5), [], Limit(55, 10.0, 5)),
    ],
)
def test_all_runs_of_a_cell_have_as_many_steps_as_its_first(
    settings: Settings, made: list[dict[str, Any]], limit: Limit
) -> None:
    assert limit_of(settings, made) == limit
