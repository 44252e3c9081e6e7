"""Runs with a known bottleneck are told that bottleneck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.play import play_job
from diagnose.simulator import Job, Loader, Rank

GPU_BOUND = Job(ranks=(Rank(),) * 2, steps=220)
LAUNCH_BOUND = Job(
    ranks=(Rank(forward_us=5, backward_us=5, optimizer_us=5, launch_us=40),) * 2,
    bucket_us=50,
    steps=800,
)
SLOW = Loader(batch_us=280_000)

RUNS = {
    "gpu-bound": (GPU_BOUND, ("COMPUTE-BOUND", None, None)),
    "one gpu": (replace(GPU_BOUND, ranks=(Rank(),)), ("COMPUTE-BOUND", None, None)),
    "cpu": (replace(GPU_BOUND, cuda=False, bucket_us=30), ("COMPUTE-BOUND", None, None)),
    "slow loader": (GPU_BOUND.with_all(loader=SLOW), ("DATA", None, "data")),
    "communication": (replace(GPU_BOUND, bucket_us=9000), ("COMM", None, "exposed_comm")),
    "late data": (GPU_BOUND.with_rank(1, loader=SLOW), ("STRAGGLER", 1, "data")),
    "slow forward": (GPU_BOUND.with_rank(1, forward_us=300), ("STRAGGLER", 1, "forward")),
    "slow backward": (GPU_BOUND.with_rank(1, backward_us=300), ("STRAGGLER", 1, "backward")),
    "sleep": (
        LAUNCH_BOUND.with_rank(1, sleep_us={"pre_optimizer": 30_000}),
        ("STRAGGLER", 1, "pre_optimizer"),
    ),
    "one host 3 % slower": (LAUNCH_BOUND.with_rank(1, launch_us=41.2), ("LAUNCH", 1, "backward")),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_bottleneck_of_a_run_is_told(name: str) -> None:
    job, expected = RUNS[name]

    _, played = play_job(job)

    assert played.told == expected, played.verdict
    assert played.analyser.malformed == 0
