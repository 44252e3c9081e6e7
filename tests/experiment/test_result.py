"""The table of a sweep, from runs that are made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.simulator import Job, Loader, Rank, simulate
from experiment.made import costs_of_run
from experiment.test_plan import cells
from experiment.test_schedule import FAILED, plan_of
from torchtop.experiment.costs import Costs
from torchtop.experiment.result import build

ALONE = costs_of_run(simulate(Job(ranks=(Rank(loader=Loader(4_000)),), bucket_us=0.0)))
PAIR = costs_of_run(simulate(Job(ranks=(Rank(loader=Loader(4_000)),) * 2, bucket_us=2_500.0)))


def run(step_ms: float, batch: int, costs: Costs, **more: Any) -> dict[str, Any]:
    """A run as `measure.run_of` makes one."""
    measured = {
        "steps": 200,
        "batch": batch,
        "samples_per_s": batch / step_ms * 1e3,
        "tokens_per_s": None,
        "step_ms": step_ms,
        "p50_ms": step_ms - 1,
        "p95_ms": step_ms + 5,
        "power_w": 700.0,
        "energy_j_per_1000_samples": 700e3 / (batch / step_ms * 1e3),
        "memory_peak_bytes": 10**9,
        "first_steps_s": 3.0,
        "training_loss": 0.5,
        "verdict": {"kind": "COMM", "share": 0.2, "headline": "h"},
        "phases": {"data": 1.0, "forward": step_ms - 1.0},
        "versions": {"torch": "2.11.0", "gpu": "NVIDIA H200", "driver": "580"},
        "costs": costs.to_json(),
    }
    fields = {"session": "s", "status": "done", "reason": None, "host": "a", "wall_s": 30.0}
    return {**fields, "measured": {**measured, **more}}


def table(runs: dict[str, list[dict[str, Any]]], **fixed: str) -> dict[str, Any]:
    made = cells((1, 2, 8), **fixed)
    built = build(plan_of(made, repeats=3), runs, "done", id="x", host="a")
    assert json.loads(json.dumps(built)) == built
    return built


def row(built: dict[str, Any], name: str) -> dict[str, Any]:
    return next(cell for cell in built["cells"] if cell["id"] == name)


RUNS = {
    "gpus=1": [run(38.0, 128, ALONE), run(40.0, 128, ALONE), run(39.0, 128, ALONE)],
    "gpus=2": [run(40.0, 256, PAIR), run(41.0, 256, PAIR), run(60.0, 256, PAIR)],
}


def test_speed_up_is_against_the_fewest_gpus() -> None:
    built = table(RUNS, batch_per_gpu="128")
    one, two = row(built, "gpus=1"), row(built, "gpus=2")

    assert one["samples_per_s"]["median"] == pytest.approx(128 / 0.039)
    assert one["samples_per_s"]["spread"] == pytest.approx((1 / 38 - 1 / 40) * 39)
    assert (one["speedup"], one["ideal"], one["efficiency"]) == (1.0, 1.0, 1.0)
    assert (two["base"], two["ideal"]) == ("gpus=1", 2.0)
    assert two["speedup"] == pytest.approx(2 * 39 / 41)
    assert two["efficiency"] == pytest.approx(39 / 41)
    assert two["relative"] == two["speedup"]
    assert (two["p95_ms"], two["memory_peak_bytes"], two["first_steps_s"]) == (46.0, 10**9, 3.0)
    assert two["batch_per_gpu"] == 128


def test_the_loss_is_of_the_same_numbers_as_the_table() -> None:
    two = row(table(RUNS, batch_per_gpu="128"), "gpus=2")
    loss = two["loss"]

    assert loss["measured_samples_per_s"] == pytest.approx(two["samples_per_s"]["median"])
    assert loss["lost_points"] == pytest.approx(100 * (1 - two["efficiency"]))
    points = {part["key"]: part["points"] for part in loss["parts"]}
    assert sum(points.values()) == pytest.approx(loss["lost_points"])
    assert max(points, key=lambda key: points[key]) == "exposed_comm"


SHORT = {"kind": "UNDECIDED", "share": None, "headline": "h", "seconds": 0.0}


@pytest.mark.parametrize(
    ("steps", "seconds", "told"),
    [
        # 7 s of the fastest step, which takes 10 ms
        (50, 10.0, "5 s: leave out --steps (runs of 10 s), or give --steps 700 or more"),
        (None, 2.0, "5 s: give --steps 700 or more"),
        (50, 6.0, "5 s: give --steps 700 or more"),
    ],
)
def test_runs_too_short_for_a_verdict_are_told_with_what_to_do(
    steps: int | None, seconds: float, told: str
) -> None:
    runs = {
        "gpus=1": [run(10.0, 128, ALONE, verdict=SHORT)],
        "gpus=2": [run(11.0, 256, PAIR, verdict=SHORT)],
    }
    plan = plan_of(cells((1, 2, 8)), repeats=3, steps=steps, seconds=seconds)

    notes = build(plan, runs, "done")["notes"]
    assert notes[-1].startswith("the runs were too short for verdicts, which take 20 steps and")
    assert notes[-1].endswith(told)
    # of one of them
    runs["gpus=1"] = [run(10.0, 128, ALONE)]
    notes = build(plan, runs, "done")["notes"]
    assert notes[-1].startswith("the runs of 2 GPUs were too short for verdicts")
    assert "--steps 640 or more" in notes[-1]


def test_slow_steps_need_twenty_and_a_short_warm_up_ten_more() -> None:
    runs = {"gpus=1": [run(900.0, 128, ALONE, verdict=SHORT)]}
    plan = plan_of(cells((1, 2)), steps=5, warmup=2, seconds=10.0)

    assert build(plan, runs, "done")["notes"][-1].endswith("5 s: give --steps 28 or more")


@pytest.mark.parametrize(
    "verdict",
    [
        {"kind": "UNDECIDED", "seconds": 4.0},
        {"kind": "UNDECIDED"},  # of an older release
        {"kind": "DATA", "seconds": 0.0},
        None,
        "x",
    ],
)
def test_another_verdict_is_not_too_short(verdict: Any) -> None:
    runs = {"gpus=1": [run(10.0, 128, ALONE, verdict=verdict)]}

    assert not any("too short" in n for n in build(plan_of(cells((1, 2))), runs, "done")["notes"])


def test_what_could_not_be_measured_says_why_and_has_no_numbers() -> None:
    built = table({"gpus=1": RUNS["gpus=1"], "gpus=2": [FAILED]}, batch_per_gpu="128")
    two, eight = row(built, "gpus=2"), row(built, "gpus=8")

    assert (two["status"], two["reason"], two["settled"]) == ("failed", "no", True)
    assert (eight["status"], eight["reason"]) == ("skipped", "this machine has 4 GPUs")
    for cell in (two, eight):
        assert cell["samples_per_s"] is cell["loss"] is cell["speedup"] is None
    assert row(built, "gpus=1")["status"] == "measured"


def test_while_the_base_is_not_measured_there_is_no_speed_up() -> None:
    two = row(table({"gpus=2": RUNS["gpus=2"]}, batch_per_gpu="128"), "gpus=2")

    assert (two["ideal"], two["speedup"], two["efficiency"], two["loss"]) == (2.0, None, None, None)


def test_runs_on_different_machines_are_told() -> None:
    other = run(39.0, 128, ALONE, versions={"gpu": "NVIDIA A100", "torch": "2.11.0"})
    built = table({"gpus=1": [*RUNS["gpus=1"], other]}, batch_per_gpu="128")

    assert built["notes"] == ["the runs differ in their gpu: NVIDIA A100, NVIDIA H200"]


def test_a_single_run_is_told_to_know_no_noise() -> None:
    built = table({"gpus=1": RUNS["gpus=1"][:1]}, batch_per_gpu="128")

    assert row(built, "gpus=1")["samples_per_s"]["spread"] is None
    assert built["notes"] == ["one run says nothing about its own noise: 1 GPU"]


def test_progress_is_told() -> None:
    built = table({"gpus=1": RUNS["gpus=1"]}, batch_per_gpu="128")

    told = {"runs_done": 3, "runs_left": 3, "eta_s": 90.0, "session": None}
    assert built["progress"] == told


def test_of_a_command_the_ranks_that_were_seen_make_its_batch_each() -> None:
    # given a cell that nobody gave a number of devices
    made = cells(())
    assert [(cell.label, cell.devices) for cell in made.values()] == [("its own ranks", None)]
    # when two ranks were seen in it, and before
    runs = {"all": [run(40.0, 32, PAIR, world_size=2)]}
    seen, before = (build(plan_of(made), known, "done")["cells"][0] for known in (runs, {}))

    assert (seen["gpus"], seen["nproc"], seen["batch_per_gpu"]) == (2, 2, 16)
    assert (before["gpus"], before["batch_per_gpu"]) == (None, None)
    assert (seen["base"], seen["loss"]) == (None, None)
