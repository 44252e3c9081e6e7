"""Everything that holds a run together is killed at once."""

from __future__ import annotations

import os
import signal
import time

import pytest

from app.pty_child import ROOT, Child
from faults.scripts import LOADING, Start
from launch.supervised import unhurried, wait_until
from torchtop.launch.sweep import leftovers
from torchtop.session.paths import liveness

VIEWER = """
import sys
from torchtop.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.mark.fault(
    4,
    "SIGKILL viewer, supervisor and torchrun at once",
    "ranks gone in 1 s, loader workers in 6 s",
)
def test_nothing_outlives_viewer_supervisor_and_torchrun(run: Start) -> None:
    # given two ranks with two loader workers each, and a viewer
    session = run(LOADING + "for number, batch in enumerate(loader):\n    number == 2 and up()")
    ranks = session.started(2)
    agent = session.pids("agent")[0]
    path = f"{ROOT / 'tui'}:{ROOT / 'workloads'}"
    viewer = Child(VIEWER, "attach", session.paths.id, PYTHONPATH=path)
    try:
        assert viewer.read(60.0, until=b"\x1b[?1049h"), viewer.seen[-500:]
        workers = set(session.marked()) - {*ranks, agent}
        assert len(workers) >= 4
        # when all three are killed
        for pid in (viewer.pid, session.supervisor, agent):
            os.kill(pid, signal.SIGKILL)
        killed_s = time.monotonic()
        # then the ranks go with their agent, and the workers when they see that they are alone
        wait_until(
            lambda: not set(session.marked()) & {*ranks, agent},
            "the ranks are gone",
            unhurried(1.0),
        )
        session.gone(6.0 - (time.monotonic() - killed_s))
    finally:
        viewer.close()
    assert liveness(session.paths) == "lost"
    assert leftovers(session.paths) == []
