"""The model of DDP ranks behaves as real ones were seen to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from diagnose.cases import TOUCHY
from diagnose.simulator import Job, Loader, Pause, Rank, simulate
from torchtop.session.records import PHASES

GPU_BOUND = Job(ranks=(Rank(),) * 2, steps=80)
TINY = Rank(forward_us=5, backward_us=5, optimizer_us=5, launch_us=120, loader=Loader(4_000))
LAUNCH_BOUND = Job(ranks=(TINY,) * 2, bucket_us=20, steps=80)


def test_a_gpu_bound_step_takes_as_long_as_its_kernels() -> None:
    run = simulate(GPU_BOUND)

    assert run.step_us() == pytest.approx(190 * 200 + 300, rel=0.01)
    assert run.mean_us(0, "lag_backward") > 20_000


def test_a_launch_bound_step_takes_as_long_as_its_launches() -> None:
    run = simulate(replace(LAUNCH_BOUND, ranks=(TINY,)))

    assert run.step_us() == pytest.approx(190 * 120, rel=0.02)
    assert run.mean_us(0, "lag_backward") < 50


def test_a_full_launch_queue_holds_the_host_back() -> None:
    # given a device that is slower than its host
    run = simulate(replace(GPU_BOUND, queue=100))

    # then the host is at most the queue ahead, and takes as long for a step as the device
    assert max(row["lag_backward_us"] for row in run.rows[0]) <= 101 * 200
    assert run.mean_us(0, "host", 40) == pytest.approx(run.step_us(40), rel=0.01)


def test_a_rank_that_waits_hides_its_own_launches() -> None:
    # given hosts of which one is 3 % slower
    run = simulate(LAUNCH_BOUND.with_rank(1, launch_us=123.6))

    # then the other seems to wait for most of the step, though dropping the slow one gains 3 %
    assert run.mean_us(0, "exposed_comm", 60) > 0.8 * run.step_us(60)
    assert run.step_us(60) / simulate(LAUNCH_BOUND).step_us(60) == pytest.approx(1.03, abs=0.01)


def test_waits_of_a_slow_loader_are_bursty() -> None:
    # given four workers that deliver four batches at a time
    run = simulate(GPU_BOUND.with_all(loader=Loader(batch_us=280_000)))

    waits = sorted(row["data_us"] for row in run.rows[0][20:])

    assert waits[len(waits) // 2] < 1000
    assert run.mean_us(0, "data") == pytest.approx(280_000 / 4 - 38_300, rel=0.1)


def test_a_short_wait_in_next_is_hidden_by_a_deep_queue() -> None:
    job = replace(GPU_BOUND, queue=100_000).with_all(loader=Loader(batch_us=120_000))

    run = simulate(job)

    assert run.mean_us(0, "data_host") > 20_000
    assert run.mean_us(0, "data") < 100


def test_phases_tile_the_step() -> None:
    run = simulate(LAUNCH_BOUND.with_rank(1, sleep_us={"other": 9_000}))

    for rows in run.rows:
        for before, row in pairwise(rows):
            total = sum(row[f"{phase}_us"] for phase in PHASES)
            assert total == pytest.approx(row["device_us"] - before["device_us"], abs=5)


def test_lag_is_what_a_device_takes_longer_than_its_host() -> None:
    run = simulate(LAUNCH_BOUND.with_rank(1, sleep_us={"other": 9_000}))

    for rows in run.rows:
        for before, row in pairwise(rows):
            lag = before["lag_exposed_comm_us"]
            for phase in ("pre_optimizer", "optimizer", "other", "data", "forward", "backward"):
                lag += row[f"{phase}_us"] - row[f"{phase}_host_us"]
                assert lag == pytest.approx(row[f"lag_{phase}_us"], abs=8)


def test_a_result_that_is_read_makes_the_device_starve_afterwards() -> None:
    # given a host that needs its lead, because its forward is all launches
    free, waits = simulate(TOUCHY), simulate(replace(TOUCHY, sync=("other",)))

    assert waits.mean_us(0, "lag_other") < 50
    assert waits.mean_us(0, "other_host") > 0.5 * waits.step_us()
    assert waits.step_us() > 1.3 * free.step_us()


def test_a_copy_from_pageable_memory_takes_the_lead_of_the_host() -> None:
    pinned = simulate(GPU_BOUND.with_all(copy_us=10_000))
    pageable = simulate(GPU_BOUND.with_all(copy_us=10_000, pageable=True))

    assert pinned.step_us() == pytest.approx(pageable.step_us(), rel=0.01)
    assert pinned.mean_us(0, "lag_forward") > 100_000 > pageable.mean_us(0, "lag_forward")


def test_micro_batches_synchronise_once() -> None:
    one = simulate(replace(GPU_BOUND, bucket_us=9_000))
    four = simulate(replace(GPU_BOUND, bucket_us=9_000, micro_batches=4))

    assert four.mean_us(0, "exposed_comm") == pytest.approx(one.mean_us(0, "exposed_comm"), rel=0.1)
    assert four.mean_us(0, "forward") == pytest.approx(4 * one.mean_us(0, "forward"), rel=0.01)


def test_reentrant_checkpointing_waits_inside_of_backward() -> None:
    run = simulate(replace(GPU_BOUND, reentrant=True, bucket_us=9_000))

    assert run.mean_us(0, "exposed_comm") == pytest.approx(34_000, rel=0.05)
    assert run.mean_us(0, "backward") == pytest.approx(150 * 200, rel=0.01)


def test_a_pause_shows_where_it_outlasts_the_queue() -> None:
    def pause(step: int) -> Pause | None:
        return Pause("gc", 300_000) if step == 60 else None

    shallow = simulate(GPU_BOUND.with_rank(1, pause=pause))
    deep = simulate(replace(GPU_BOUND, queue=10_000).with_rank(1, pause=pause))

    assert shallow.step_us() > 1.03 * simulate(GPU_BOUND).step_us()
    assert deep.step_us() == pytest.approx(simulate(GPU_BOUND).step_us(), rel=0.001)
    assert [what for _, _, what in shallow.pauses[1]] == [pause(60)]


def test_a_scaler_that_skips_the_optimizer_saves_its_time() -> None:
    run = simulate(replace(GPU_BOUND, skipped=lambda step: step % 2 == 0))

    times = [row["optimizer_us"] for row in run.rows[0][20:]]
    assert (min(times), max(times)) == (pytest.approx(3, abs=3), pytest.approx(2000, abs=10))
