"""``torchtop stacks`` on real ranks."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.supervised import Run
from torchtop.cli import main

Start = Callable[..., Run]

STUCK = """
def stuck():
    up()
    while True:
        time.sleep(0.05)

def train():
    if rank == 1:
        stuck()
    up()
    while True:
        time.sleep(0.05)

train()
"""


@pytest.mark.fault(19, "collective that one rank does not call", "hung within 10 s; stacks")
def test_every_rank_is_told_with_the_lines_of_the_script(
    run: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    session = run(STUCK)
    pids = session.started(2)
    # when the stacks are asked for
    assert main(["stacks"]) == 0
    told = capsys.readouterr().out
    # then each rank's own lines are there, and none of torchtop's
    first, second = told.split("rank 1")
    assert first.startswith("rank 0")
    assert "in train" in first and "in stuck" not in first
    assert "train.py" in second and "in stuck" in second
    assert "_torchtop" not in told and "rank.py" not in told
    # and a rank that is stopped is told as one that does not answer, beside one that does
    os.kill(pids[1], signal.SIGSTOP)
    assert main(["stacks", "--json", session.paths.id]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert ranks[0]["frames"] and ranks[0]["problem"] is None
    assert not ranks[1]["frames"] and "does not answer" in ranks[1]["problem"]
    # and nobody was hurt
    os.kill(pids[1], signal.SIGCONT)
    assert session.events("rank_exit") == []
    # when it has ended, there is nothing to show
    assert main(["stop"]) == 0
    assert main(["stacks", session.paths.id]) == 2
    assert "is not running" in capsys.readouterr().err


def test_with_nothing_running_it_says_so(
    state_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stacks"]) == 2
    assert "there are no sessions" in capsys.readouterr().err
