"""A stop at any moment of a start."""

from __future__ import annotations

import random
import time

import pytest

from faults.scripts import Start
from launch.supervised import Run
from torchtop.session.paths import liveness, request_stop

TRAINING = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
up()
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.01)
"""
MOMENTS = 20
AT_ONCE = 2
STARTUP_S = 5.0
"""From torchrun's start until ranks talk to each other, on a machine with nothing else to do."""


@pytest.mark.fault(8, "a stop at 20 random moments of a start", "no process is left")
def test_a_stop_at_any_moment_of_a_start_leaves_nothing(run: Start) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    moments = [chance.uniform(0, STARTUP_S) for _ in range(MOMENTS)]
    stopped_early = 0
    while moments:
        # given some runs that start
        batch = sorted(moments.pop() for _ in range(AT_ONCE))
        sessions = [run(TRAINING, soft_timeout_s=2.0) for _ in batch]
        began_s = time.monotonic()
        # when each is stopped in its moment
        for session, moment in zip(sessions, batch, strict=True):
            time.sleep(max(0.0, began_s + moment - time.monotonic()))
            request_stop(session.paths, chance.choice(("soft", "stop", "kill")), "a test")
            stopped_early += not (session.paths.root / "up-0").exists()
        # then nothing of it is left
        for session, moment in zip(sessions, batch, strict=True):
            assert_stopped(session, f"seed {seed}: after {moment:.3f} s")
    assert stopped_early, "no stop fell into a start"


def assert_stopped(session: Run, when: str) -> None:
    events = session.ended()
    assert session.living() == [], when
    assert events[-1].get("status") == "stopped", (when, session.exit)
    assert session.exit["cause"] == "stopped", when
    assert not session.events("leftover"), when
    assert liveness(session.paths) == "ended", when
