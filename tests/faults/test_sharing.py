"""Two sessions at the same time, on the same GPUs too."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.scripts import DDP, Start
from launch.supervised import Run, launch
from torchtop.session.paths import request_stop, told_warnings

GPUS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")
TRAINING = DDP + "train_step()\nup()\nwhile True: train_step()"


def stop(*sessions: Run) -> None:
    for session in sessions:
        request_stop(session.paths, "stop", "a test")
    for session in sessions:
        assert session.ended()[-1]["status"] == "stopped"
        assert session.living() == []


@pytest.mark.fault(22, "two sessions at once", "both run")
def test_two_sessions_train_side_by_side(run: Start, tmp_path: Path) -> None:
    first = run(TRAINING)
    second = run(TRAINING)
    assert len({*first.started(2), *second.started(2)}) == 4
    assert told_warnings(second.paths) == []
    stop(first, second)


@pytest.mark.fault(22, "the same GPUs asked for twice", "both run; a warning in the second")
def test_who_asks_for_gpus_that_are_in_use_is_warned(run: Start, tmp_path: Path) -> None:
    # given a session on two GPUs, which are not there: its script makes do without
    script = "up()\nwhile True: time.sleep(0.05)"
    first = run(script, device="cuda", gpu_uuids=GPUS)
    assert told_warnings(first.paths) == []
    # when another asks for one of them
    second = run(script, device="cuda", gpu_uuids=GPUS[1:], nproc=1)
    # then it is told, and runs
    (line,) = told_warnings(second.paths)
    assert line.startswith(f"{first.paths.id} runs on the same GPU: both will be slower")
    first.started(2)
    second.started(1)
    stop(first, second)
    # and what has ended is in nobody's way
    third = launch(tmp_path, "up()", device="cuda", gpu_uuids=GPUS)
    third.ended()
    assert told_warnings(third.paths) == []
