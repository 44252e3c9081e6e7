"""The waterfall on simulated runs, of which the truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.simulator import Job, Loader, Rank, simulate
from experiment.made import costs_of_run
from torchtop.experiment.accounting import LABELS, Measured, explain
from torchtop.experiment.costs import Costs, combine

FAST = Loader(batch_us=4_000)
GPU = Rank(launch_us=20, loader=FAST)
"""190 kernels of 0.2 ms: the GPU is the limit."""
TINY = Rank(forward_us=5, backward_us=5, optimizer_us=5, launch_us=120, loader=FAST)
"""The same number of kernels, which the host takes 0.12 ms each to issue."""


def halved(rank: Rank, **changes: Any) -> Rank:
    """With half of the batch, whose kernels take half as long; but not the optimizer's."""
    half = {"forward_us": rank.forward_us / 2, "backward_us": rank.backward_us / 2}
    return replace(rank, **{**half, **changes})


def measured(
    name: str, batch: int, ranks: tuple[Rank, ...], steps: int = 120, **job: Any
) -> Measured:
    run = simulate(Job(ranks=ranks, steps=steps, **job))
    return Measured(name, costs_of_run(run), batch, len(ranks), "ddp")


def waterfall(loss: dict[str, Any]) -> dict[str, float]:
    """The points of each part, of which the sum is checked."""
    points = {part["key"]: part["points"] for part in loss["parts"]}
    assert sum(points.values()) == pytest.approx(loss["lost_points"], abs=1e-6)
    ideal, seen = loss["ideal_samples_per_s"], loss["measured_samples_per_s"]
    assert loss["lost_points"] == pytest.approx(100 * (1 - seen / ideal))
    return points


def strong(rank: Rank, other: dict[str, Any] | None = None, **job: Any) -> dict[str, float]:
    """One GPU with a batch of 256 against two with half of it each."""
    small = halved(rank)
    alone = {**job, "bucket_us": 0.0}
    base = measured("base", 256, (rank,), **alone)
    reference = measured("reference", 128, (small,), **alone)
    two = (small, replace(small, **(other or {})))
    return waterfall(explain(base, reference, measured("cell", 256, two, **job)))


def test_two_gpus_that_do_all_they_can_lose_the_optimizer_that_does_not_shrink() -> None:
    points = strong(GPU)

    # 10 kernels of 0.2 ms in each step, of which half should have gone.
    assert points["small_batch"] == pytest.approx(100 * 1.0 / 20.3, abs=0.7)
    assert points["exposed_comm"] == pytest.approx(100 * 0.3 / 20.3, abs=0.7)
    for other in ("straggler", "data", "launch", "other"):
        assert abs(points[other]) < 1.0, other


def test_communication_that_shows_is_told_as_such() -> None:
    points = strong(GPU, bucket_us=2_500.0)

    assert points["exposed_comm"] > 15
    for other in ("straggler", "data", "launch", "other"):
        assert abs(points[other]) < 1.5, other


def test_a_slower_rank_is_straggler_wait() -> None:
    points = strong(GPU, other={"extra_us": lambda step: {"backward": 10_000.0}})

    assert points["straggler"] == pytest.approx(100 * 10 / 30.3, abs=1.5)
    assert abs(points["other"]) < 1.5


def test_a_loader_that_cannot_keep_up_with_two_is_data() -> None:
    # given one loader process a rank: it is as fast as one GPU, not as fast as a smaller batch
    slow = {"loader": Loader(batch_us=60_000, workers=2)}
    points = strong(replace(GPU, loader=Loader(batch_us=30_000, workers=2)), other=slow)
    both = simulate(Job(ranks=(halved(GPU, **slow),) * 2, steps=120))

    step_ms = both.step_us(20) / 1e3
    assert points["data"] == pytest.approx(100 * (step_ms - 20.3) / step_ms, abs=2)
    for other in ("straggler", "launch", "other"):
        assert abs(points[other]) < 2, other


def test_a_loader_that_is_late_on_one_rank_alone_is_data_too() -> None:
    points = strong(GPU, other={"loader": Loader(batch_us=60_000, workers=2)})

    assert points["data"] == pytest.approx(100 * 10 / 30, abs=3)
    assert abs(points["straggler"]) < 1.5


def test_a_launch_bound_job_gets_nothing_from_a_second_gpu() -> None:
    points = strong(TINY)

    # The host issues 190 launches of 0.12 ms on one GPU and on two: half of the speed is lost.
    assert points["launch"] == pytest.approx(49, abs=3)
    assert abs(points["small_batch"]) < 2
    assert abs(points["other"]) < 2


def test_a_base_that_the_gpu_limits_becomes_launch_bound_with_less_to_do() -> None:
    # given kernels of 0.2 ms that a host issues every 0.12 ms: half of them are too short for it
    slow_host = replace(GPU, launch_us=130.0, optimizer_us=130.0)
    points = strong(slow_host)

    step_ms, ideal_ms = 190 * 0.13, 0.5 * (180 * 0.2 + 10 * 0.13)
    assert points["launch"] + points["small_batch"] == pytest.approx(
        100 * (step_ms - ideal_ms) / (step_ms + 0.3), abs=3
    )
    assert points["launch"] > 4 * points["small_batch"]


def test_with_the_same_batch_for_each_the_base_is_the_reference() -> None:
    base = measured("base", 128, (GPU,), bucket_us=0.0)
    loss = explain(base, None, measured("cell", 256, (GPU, GPU), bucket_us=2_500.0))

    points = waterfall(loss)
    assert loss["reference"] is None
    assert points["small_batch"] == 0.0
    assert points["exposed_comm"] == pytest.approx(loss["lost_points"], abs=1.0)


def test_without_the_reference_the_smaller_batch_takes_what_cannot_be_told_apart() -> None:
    base = measured("base", 256, (GPU,), bucket_us=0.0)
    cell = measured("cell", 256, (halved(GPU),) * 2)
    loss = explain(base, None, cell)

    assert abs(waterfall(loss)["other"]) < 1e-6
    (why,) = (part["why"] for part in loss["parts"] if part["key"] == "small_batch")
    assert "no run with this batch alone" in why


def test_backward_that_communication_slows_is_told_apart_from_the_rest() -> None:
    # given a GPU whose backward takes 5 % longer with NCCL beside it
    base = measured("base", 128, (GPU,), bucket_us=0.0)
    beside = replace(GPU, backward_us=210.0)
    points = waterfall(explain(base, None, measured("cell", 256, (beside, beside))))

    assert points["comm_beside"] == pytest.approx(100 * 120 * 0.01 / 39.5, abs=0.5)
    assert abs(points["other"]) < 0.5


def test_on_a_cpu_ranks_that_share_cores_are_told_and_no_launch() -> None:
    slower = replace(GPU, forward_us=300.0, backward_us=300.0)
    base = measured("base", 128, (GPU,), bucket_us=0.0, cuda=False)
    points = waterfall(explain(base, None, measured("cell", 256, (slower, slower), cuda=False)))

    assert points["shared_cores"] > 25
    assert points["launch"] == 0.0


def test_what_dataparallel_adds_is_its_copies() -> None:
    base = measured("base", 128, (GPU,), bucket_us=0.0)
    copying = measured("cell", 256, (replace(GPU, forward_us=300.0),), bucket_us=0.0)
    points = waterfall(explain(base, None, replace(copying, devices=2, parallel="dp")))

    assert points["replication"] == pytest.approx(100 * 60 * 0.1 / 44, abs=0.5)
    assert points["other"] == 0.0


def test_more_than_ideal_is_a_gain() -> None:
    # given kernels that are faster on half of the batch than half of the time
    base = measured("base", 256, (GPU,), bucket_us=0.0)
    small = halved(GPU, forward_us=80.0, backward_us=80.0, optimizer_us=80.0)
    reference = measured("reference", 128, (small,), bucket_us=0.0)
    loss = explain(base, reference, measured("cell", 256, (small, small), bucket_us=10.0))

    assert loss["lost_points"] < 0
    assert waterfall(loss)["small_batch"] < 0


def test_every_part_has_a_label_and_the_usual_ones_are_always_there() -> None:
    base = measured("base", 128, (GPU,), bucket_us=0.0)
    loss = explain(base, None, measured("cell", 256, (GPU, GPU)))

    keys = [part["key"] for part in loss["parts"]]
    assert keys == [key for key in LABELS if key in keys]
    assert {"exposed_comm", "straggler", "data", "small_batch", "launch", "other"} <= {*keys}
    assert all(part["label"] == LABELS[part["key"]] for part in loss["parts"])


def test_costs_sum_to_the_step_and_survive_json() -> None:
    costs = costs_of_run(simulate(Job(ranks=(GPU, replace(GPU, backward_us=250.0)), steps=60)))

    parts = sum(costs.work_ms.values()) + costs.straggler_ms + costs.comm_ms
    assert parts == pytest.approx(costs.step_ms)
    assert Costs.from_json(costs.to_json()) == costs
    assert Costs.from_json({"step_ms": 1.0}) is None
    assert Costs.from_json(None) is None


def test_runs_are_combined_by_their_shares() -> None:
    first = Costs(10.0, {"forward": 4.0, "backward": 4.0}, {"forward": 0.0}, 1.0, 1.0)
    second = Costs(20.0, {"forward": 8.0, "backward": 8.0}, {"forward": 8.0}, 2.0, 2.0)
    both = combine([first, second], 15.0)

    assert both is not None
    assert both.work_ms == pytest.approx({"forward": 6.0, "backward": 6.0})
    assert both.idle_ms is not None
    assert both.idle_ms["forward"] == pytest.approx(15.0 * 0.2)
    assert both.straggler_ms == both.comm_ms == pytest.approx(1.5)
    assert combine([first, replace(second, idle_ms=None)], 15.0).idle_ms is None  # type: ignore[union-attr]
    assert combine([], 1.0) is None
