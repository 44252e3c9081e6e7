"""A rank that stops calling: told as hung, with the stacks of all ranks on request."""

from __future__ import annotations

from typing import Any

import pytest

from faults.scripts import DDP, Start
from launch.supervised import Run, wait_until
from torchtop.session.paths import request_stacks, request_stop
from torchtop.session.tail import Tail

STOPS_CALLING = (
    DDP
    + """
def stuck():
    (root / "stuck").write_text(str(time.monotonic_ns()))
    while True:
        time.sleep(0.1)

for step in range(10**9):
    train_step()
    if step == 5:
        up()
    if rank == 1 and (root / "hang").exists():
        stuck()
"""
)


def analyses(run: Run) -> list[dict[str, Any]]:
    return [a for a in Tail(run.paths.analysis).poll() if a["kind"] == "analysis"]


def one_stops(session: Run) -> None:
    """Have rank 1 stop once there is a window to judge, and the run told as hung within 10 s."""
    session.started(2)
    wait_until(lambda: [a for a in analyses(session) if a.get("window")], "there is a window")
    (session.paths.root / "hang").touch()
    wait_until((session.paths.root / "stuck").exists, "rank 1 is stuck")
    stopped_ns = int((session.paths.root / "stuck").read_text())
    hung = wait_until(
        lambda: next((a for a in analyses(session) if a["verdict"]["kind"] == "HUNG"), None),
        "the run is told as hung",
    )
    assert (hung["mono_ns"] - stopped_ns) / 1e9 <= 10


@pytest.mark.fault(19, "collective that one rank does not call", "hung within 10 s; stacks")
def test_a_rank_that_stops_calling_is_told_as_hung_and_shows_its_stack(run: Start) -> None:
    # given two ranks that have trained long enough to be judged
    session = run(STOPS_CALLING)
    # when one stops in the middle of its script, then the run is told as hung within 10 s
    one_stops(session)
    # and everyone's stack can be had, with who asked and where it lies
    request_stacks(session.paths, "a test")
    (told,) = wait_until(lambda: session.events("stacks"), "the request is taken")
    assert told["requested_by"] == "a test"
    assert [entry["rank"] for entry in told["ranks"]] == [0, 1]
    assert told["silent"] == []
    stacks = wait_until(lambda: stacks_of(session, told), "both have written their stacks")
    assert "in stuck" in stacks[1]
    assert "in train_step" in stacks[0] and "in stuck" not in stacks[0]
    # and it can still be stopped
    request_stop(session.paths, "stop", "a test")
    assert session.ended()[-1]["status"] == "stopped"
    assert session.living() == []


def stacks_of(run: Run, told: dict[str, Any]) -> list[str] | None:
    texts = [
        (run.paths.root / entry["file"]).read_bytes()[entry["offset"] :].decode()
        for entry in told["ranks"]
    ]
    return texts if all("train.py" in text for text in texts) else None


@pytest.mark.fault(19, "collective that one rank does not call", "hung within 10 s; stacks")
def test_a_process_that_would_die_of_the_question_is_not_asked(run: Start) -> None:
    # given a rank that takes the signal's handler away
    session = run(
        """
        import faulthandler
        if rank == 1:
            faulthandler.unregister(signal.SIGUSR2)
        up()
        while True:
            time.sleep(0.05)
        """
    )
    session.started(2)
    # when stacks are asked for, twice at the same time
    request_stacks(session.paths, "a test")
    request_stacks(session.paths, "a test")
    (told,) = wait_until(lambda: session.events("stacks"), "the request is taken")
    # then it is named, and lives
    assert ([entry["rank"] for entry in told["ranks"]], told["silent"]) == ([0], [1])
    wait_until(lambda: stacks_of(session, told), "rank 0 has written")
    assert session.events("rank_exit") == []
    request_stop(session.paths, "stop", "a test")
    session.ended()
    assert len(session.events("stacks")) == 1
