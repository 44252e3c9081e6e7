"""Runs with a known bottleneck are told that bottleneck, and what removing it would gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from diagnose.play import Played, play, play_job
from diagnose.sim_records import records
from diagnose.simulator import Job, Loader, Rank, Run, simulate

GPU_BOUND = Job(ranks=(Rank(),) * 2, steps=220)
TINY = Rank(forward_us=5, backward_us=5, optimizer_us=5, launch_us=120, loader=Loader(4_000))
LAUNCH_BOUND = Job(
    ranks=(TINY,) * 2,
    bucket_us=20,
    steps=320,
    host_jitter=0.03,
)
SLOW = Loader(batch_us=280_000)
"""One worker needs 280 ms a batch, so four of them deliver one in 70 ms; a step computes 38 ms."""
SLEEP = 40_000.0

Told = tuple[str, int | None, str | None]


def sleeper(job: Job, place: str) -> Job:
    return job.with_rank(1, sleep_us={place: SLEEP})


def phased(job: Job, count: int) -> Job:
    """Every rank has the slow loader, and starts it at a time of its own."""
    loaders = [replace(SLOW, offset_us=280_000 / count * index) for index in range(count)]
    return replace(job, ranks=tuple(Rank(loader=loader) for loader in loaders))


def turns(step: int, rank: int) -> dict[str, float]:
    return {"backward": 25_000.0 if step * 7919 % 4 == rank else 0.0}


def rotating() -> Job:
    def slow(rank: int) -> Callable[[int], dict[str, float]]:
        return lambda step: turns(step, rank)

    return replace(GPU_BOUND, ranks=tuple(Rank(extra_us=slow(rank)) for rank in range(4)))


GROUP = (Rank(),) * 4 + (Rank(backward_us=300),) * 2
HOST = LAUNCH_BOUND.with_rank(1, launch_us=123.6)
BOTH_SLEEP = replace(HOST.with_all(sleep_us={"pre_optimizer": 20_000.0}))

HEALTHY: Told = ("COMPUTE-BOUND", None, None)
DATA: Told = ("DATA", None, "data")
RUNS: dict[str, tuple[Job, Told]] = {
    "gpu-bound": (GPU_BOUND, HEALTHY),
    "gpu-bound, 8 ranks": (replace(GPU_BOUND, ranks=(Rank(),) * 8, host_jitter=0.1), HEALTHY),
    "gpu-bound, one gpu": (replace(GPU_BOUND, ranks=(Rank(),)), HEALTHY),
    "gpu-bound, batch norm": (replace(GPU_BOUND, broadcast=True), HEALTHY),
    "gpu-bound, loss.item()": (replace(GPU_BOUND, sync=("other",)), HEALTHY),
    "loader hidden": (
        replace(GPU_BOUND, queue=100_000).with_all(loader=Loader(batch_us=120_000)),
        HEALTHY,
    ),
    "cpu": (replace(GPU_BOUND, cuda=False, bucket_us=30), HEALTHY),
    "slow loader": (GPU_BOUND.with_all(loader=SLOW), DATA),
    "slow loader, out of phase": (phased(GPU_BOUND, 2), DATA),
    "slow loader, 8 ranks out of phase": (phased(GPU_BOUND, 8), DATA),
    "slow loader, cpu": (replace(GPU_BOUND, cuda=False).with_all(loader=SLOW), DATA),
    "slow loader, one gpu": (replace(GPU_BOUND, ranks=(Rank(loader=SLOW),)), DATA),
    "no workers": (GPU_BOUND.with_all(loader=Loader(batch_us=60_000, workers=0)), DATA),
    "communication": (replace(GPU_BOUND, bucket_us=9000), ("COMM", None, "exposed_comm")),
    "communication, cpu": (
        replace(GPU_BOUND, bucket_us=9000, cuda=False),
        ("COMM", None, "exposed_comm"),
    ),
    "late data": (GPU_BOUND.with_rank(1, loader=SLOW), ("STRAGGLER", 1, "data")),
    "slow forward": (GPU_BOUND.with_rank(1, forward_us=300), ("STRAGGLER", 1, "forward")),
    "slow backward": (GPU_BOUND.with_rank(1, backward_us=300), ("STRAGGLER", 1, "backward")),
    "slow backward, launch-bound": (
        LAUNCH_BOUND.with_rank(1, extra_us=lambda step: {"backward": 40_000.0}),
        ("STRAGGLER", 1, "backward"),
    ),
    "slow group": (replace(GPU_BOUND, ranks=GROUP), ("STRAGGLER", 4, "backward")),
    "sleep": (sleeper(GPU_BOUND, "pre_optimizer"), ("STRAGGLER", 1, "pre_optimizer")),
    "sleep, launch-bound": (
        sleeper(LAUNCH_BOUND, "pre_optimizer"),
        ("STRAGGLER", 1, "pre_optimizer"),
    ),
    "sleep in optimizer": (
        sleeper(GPU_BOUND.with_rank(1, optimizer_us=200), "optimizer"),
        ("STRAGGLER", 1, "optimizer"),
    ),
    "sleep between steps": (sleeper(LAUNCH_BOUND, "other"), ("STRAGGLER", 1, "other")),
    "sleep in backward": (sleeper(LAUNCH_BOUND, "backward"), ("STRAGGLER", 1, "backward")),
    "sleep, cpu": (
        replace(sleeper(GPU_BOUND, "pre_optimizer"), cuda=False),
        ("STRAGGLER", 1, "pre_optimizer"),
    ),
    "late rank 0, batch norm": (
        replace(GPU_BOUND, broadcast=True).with_rank(0, sleep_us={"pre_optimizer": 60_000.0}),
        ("STRAGGLER", 0, "pre_optimizer"),
    ),
    "rotating": (rotating(), ("STRAGGLER", None, "backward")),
    "one host 3 % slower": (HOST, ("LAUNCH", 1, "backward")),
    "one host 3 % slower, batch norm": (replace(HOST, broadcast=True), ("LAUNCH", 1, "backward")),
    "all hosts sleep as long": (BOTH_SLEEP, ("LAUNCH", 1, "backward")),
    "launch-bound, one gpu": (
        replace(LAUNCH_BOUND, ranks=LAUNCH_BOUND.ranks[:1]),
        ("LAUNCH", None, "backward"),
    ),
}


@cache
def played(name: str) -> tuple[Run, Played]:
    return play_job(RUNS[name][0])


@pytest.mark.parametrize("name", RUNS)
def test_the_bottleneck_of_a_run_is_told(name: str) -> None:
    _, out = played(name)

    assert out.told == RUNS[name][1], out.verdict
    assert out.analyser.malformed == 0


@pytest.mark.parametrize("name", RUNS)
def test_the_first_verdict_is_the_right_one_and_in_time(name: str) -> None:
    # given the run's analyses, one a second
    run, out = played(name)
    start_s = run.rows[0][10]["end_ns"] / 1e9
    later_s = max(start_s + 10.0, run.rows[0][35]["end_ns"] / 1e9) + 1.0

    first = next(a for a in out.analyses if not a["warming_up"])
    at_s = out.analyses.index(first) + 1

    assert (first["verdict"]["kind"], first["verdict"]["rank"]) == RUNS[name][1][:2]
    assert at_s <= later_s


@pytest.mark.parametrize("name", RUNS)
def test_a_verdict_stands_once_it_is_made(name: str) -> None:
    _, out = played(name)

    told = [(a["verdict"]["kind"], a["verdict"]["phase"]) for a in out.analyses if a["window"]]
    changes = sum(a != b for a, b in pairwise(told))

    assert changes <= 1, told


@pytest.mark.parametrize("name", RUNS)
def test_the_phases_sum_to_the_step(name: str) -> None:
    run, out = played(name)

    total = sum(phase["ms"] for phase in out.last["phases"].values())
    window = out.last["window"]
    spans = [row["device_us"] for row in run.rows[0]]
    true_us = spans[window["to_step"] - 1] - spans[window["from_step"] - 1]

    assert total == pytest.approx(out.last["step_ms"]["mean"], abs=0.01)
    assert total == pytest.approx(true_us / window["steps"] / 1000, rel=0.01)


REMEDIES = {
    "slow loader": GPU_BOUND,
    "slow loader, out of phase": GPU_BOUND,
    "slow loader, one gpu": replace(GPU_BOUND, ranks=(Rank(),)),
    "no workers": GPU_BOUND,
    "communication": replace(GPU_BOUND, bucket_us=0),
    "late data": GPU_BOUND,
    "slow forward": GPU_BOUND,
    "slow backward": GPU_BOUND,
    "slow group": replace(GPU_BOUND, ranks=(Rank(),) * 6),
    "sleep": GPU_BOUND,
    "sleep, launch-bound": LAUNCH_BOUND,
    "sleep between steps": LAUNCH_BOUND,
    "sleep in backward": LAUNCH_BOUND,
    "late rank 0, batch norm": replace(GPU_BOUND, broadcast=True),
    "one host 3 % slower": HOST.with_all(launch_us=1.0),
}
"""The same runs with the cause taken away."""


@pytest.mark.parametrize("name", REMEDIES)
def test_the_gain_is_what_removing_the_cause_gains(name: str) -> None:
    run, out = played(name)

    saved = 1 - simulate(REMEDIES[name]).step_us() / run.step_us()

    assert 1 - 1 / out.verdict["gain_bound"] == pytest.approx(saved, abs=0.06)


def test_one_slow_host_is_no_straggler() -> None:
    # given launch-bound ranks, one of which issues kernels 3 % slower, and waits of most of a step
    run, out = played("one host 3 % slower")
    assert run.mean_us(0, "exposed_comm") > 0.5 * run.step_us()

    straggler = [c["share"] for c in out.last["candidates"] if c["kind"] == "STRAGGLER"]

    assert sum(straggler) < 0.05


def test_a_wait_in_next_that_the_queue_hides_is_no_data_stall() -> None:
    # given a host that spends most of each step in next(), while the device has work queued
    run, out = played("loader hidden")
    assert run.mean_us(0, "data_host") > 0.5 * run.step_us()

    assert out.last["phases"]["data"]["share"] < 0.01
    assert out.last["ranks"][0]["data_host_ms"] > 15


def test_a_loader_that_is_late_by_chance_is_not_a_straggler() -> None:
    # given slow loaders everywhere, rank 0's 1 % slower, long enough that rank 1's queue is full
    job = GPU_BOUND.with_rank(0, loader=SLOW).with_rank(1, loader=replace(SLOW, batch_us=277_000))
    run, out = play_job(replace(job, steps=1200))
    assert run.mean_us(1, "data", first=1000) < 0.2 * run.mean_us(0, "data", first=1000)

    assert out.told == DATA


def test_a_tie_is_told_in_the_headline() -> None:
    job = replace(GPU_BOUND, bucket_us=9_000).with_all(loader=replace(SLOW, batch_us=400_000))

    _, out = play_job(job)

    assert out.verdict["kind"] in ("DATA", "COMM")
    assert "about as much" in out.verdict["headline"]


def test_a_sparser_record_comes_to_the_same() -> None:
    # given ranks that record one step in two and one in four
    run, full = played("slow loader, out of phase")

    sparse = play(records(run, strides=(2, 4)))

    share = sparse.last["phases"]["data"]["share"]
    assert sparse.told == DATA
    assert share == pytest.approx(full.last["phases"]["data"]["share"], abs=0.08)
    assert sparse.last["window"]["recorded"] < 0.4 * sparse.last["window"]["steps"]


def test_the_same_records_give_the_same_analyses() -> None:
    run, out = played("rotating")

    assert play(records(run)).analyses == out.analyses


def test_compiling_is_not_counted() -> None:
    compiling = {0: 30e6, 12: 20e6, 13: 4e6}
    _, out = play_job(replace(GPU_BOUND, compiling=compiling, steps=260))

    assert out.told == HEALTHY
    assert out.last["step_ms"]["max"] < 1000
