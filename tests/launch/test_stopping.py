"""Stopping, and being killed: whatever happens, nothing of a session is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from launch.supervised import Run, unhurried, wait_until
from torchtop.launch.ladder import GIVE_UP_S, TERM_MARGIN_S
from torchtop.launch.sweep import leftovers, sweep
from torchtop.session.paths import liveness, request_stop

Start = Callable[..., Run]

SLEEP = """
up()
while True:
    time.sleep(0.05)
"""

DEAF = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
up()
while True:
    time.sleep(0.05)
"""

DAEMON = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 1 and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        (root / "daemon").write_text(str(os.getpid()))
        while True:
            time.sleep(0.05)
    os._exit(0)
while not (root / "daemon").exists():
    time.sleep(0.01)
up()
while True:
    time.sleep(0.05)
"""


def assert_nothing_left(run: Run) -> None:
    assert run.living() == []
    assert liveness(run.paths) == "ended"
    assert list(run.paths.node().requests.iterdir()) == []


def test_a_stop_request_ends_everything_and_the_session_is_stopped(run: Start) -> None:
    # given two ranks at work, the helpers beside them
    session = run(SLEEP)
    session.started(2)
    assert len(session.pids("agent", "sampler", "analyst")) == 3
    assert liveness(session.paths) == "live"
    # when a viewer asks twice to stop
    request_stop(session.paths, "stop", "a test")
    request_stop(session.paths, "stop", "a test")
    events = session.ended()
    # then it is stopped once, and nothing is left
    assert [(e["mode"], e["why"]) for e in events if e["kind"] == "stop"] == [("stop", "user")]
    assert events[-1]["kind"] == "end"
    assert events[-1]["status"] == "stopped"
    assert session.exit["cause"] == "stopped"
    assert session.paths.summary.is_file()
    assert_nothing_left(session)


def test_a_soft_stop_signals_the_ranks_alone_so_that_they_can_save(run: Start) -> None:
    # given ranks that save when they get SIGTERM, each with a child that a SIGTERM would kill
    session = run(
        """
        import subprocess
        loader = subprocess.Popen(["sleep", "1000"])
        def save(*_):
            (root / f"saved-{rank}").write_text(json.dumps(loader.poll()))
            loader.kill()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        up()
        while True:
            time.sleep(0.05)
        """
    )
    session.started(2)
    # when a soft stop is asked for
    request_stop(session.paths, "soft", "a test")
    events = session.ended()
    # then both saved with their child alive, and no harsher means was needed
    assert [session.read(f"saved-{rank}") for rank in (0, 1)] == [None, None]
    assert not [e for e in events if e["kind"] == "escalated"]
    assert session.exit["cause"] == "stopped"
    assert_nothing_left(session)


def test_a_soft_stop_that_is_not_heard_goes_on_to_torchrun(run: Start) -> None:
    session = run(DEAF, soft_timeout_s=0.3)
    session.started(2)
    request_stop(session.paths, "soft", "a test")
    events = session.ended()
    assert next(e["stage"] for e in events if e["kind"] == "escalated") == "term"
    assert events[-1]["status"] == "stopped"
    assert_nothing_left(session)


@pytest.mark.fault(5, "a daemon of the script, and a stop", "no process is left")
def test_a_daemon_of_the_script_that_ignores_sigterm_is_ended_too(run: Start) -> None:
    # given a process that left its parent, its session and its group
    session = run(DAEMON)
    session.started(2)
    assert int((session.paths.root / "daemon").read_text()) in session.marked()
    # when the run is stopped
    request_stop(session.paths, "stop", "a test")
    events = session.ended()
    # then it took a SIGKILL, and it worked
    assert [e["stage"] for e in events if e["kind"] == "escalated"] == ["kill"]
    assert not [e for e in events if e["kind"] == "leftover"]
    assert_nothing_left(session)


@pytest.mark.fault(6, "ranks that ignore SIGTERM", "gone within the ladder")
def test_ranks_that_ignore_sigterm_are_gone_within_the_ladder(run: Start) -> None:
    # given a torchrun that waits for a second before it kills
    session = run(DEAF, shutdown_timeout_s=1.0)
    session.started(2)
    began_s = time.monotonic()
    request_stop(session.paths, "stop", "a test")
    assert session.ended()[-1]["status"] == "stopped"
    assert time.monotonic() - began_s < unhurried(1.0 + TERM_MARGIN_S + GIVE_UP_S)
    assert_nothing_left(session)


@pytest.mark.fault(6, "ranks that ignore SIGTERM", "gone within the ladder")
def test_a_kill_request_overtakes_a_stop_that_waits(run: Start) -> None:
    # given ranks that ignore SIGTERM, and a torchrun that would wait for them for an hour
    session = run(DEAF, shutdown_timeout_s=3600.0)
    session.started(2)
    request_stop(session.paths, "stop", "a test")
    wait_until(lambda: session.events("stop"), "the stop is taken")
    # when kill is asked for
    request_stop(session.paths, "kill", "a test")
    events = session.ended()
    # then it does not wait
    assert [e["mode"] for e in events if e["kind"] == "stop"] == ["stop", "kill"]
    assert session.exit["cause"] == "stopped"
    assert_nothing_left(session)


def test_sigterm_to_the_supervisor_is_a_stop(run: Start) -> None:
    session = run(SLEEP)
    session.started(2)
    os.kill(session.supervisor, signal.SIGTERM)
    assert session.ended()[-1]["status"] == "stopped"
    assert_nothing_left(session)


def test_sighup_to_the_supervisor_is_nothing(run: Start) -> None:
    session = run(SLEEP)
    ranks = session.started(2)
    os.kill(session.supervisor, signal.SIGHUP)
    request_stop(session.paths, "stop", "a test")
    assert session.ended()[-1]["status"] == "stopped"
    assert session.exit["cause"] == "stopped"
    assert len(ranks) == 2


@pytest.mark.fault(7, "a stopped (SIGSTOP) rank or torchrun", "the stop completes")
@pytest.mark.parametrize("role", ["rank", "agent"])
def test_a_process_that_stands_still_does_not_hold_up_a_stop(run: Start, role: str) -> None:
    session = run(SLEEP)
    session.started(2)
    os.kill(session.pids(role)[-1], signal.SIGSTOP)
    request_stop(session.paths, "stop", "a test")
    assert session.ended()[-1]["status"] == "stopped"
    assert session.exit["cause"] == "stopped"
    assert_nothing_left(session)


@pytest.mark.fault(3, "SIGKILL the supervisor", "no process after shutdown-timeout + 2 s")
def test_a_killed_supervisor_takes_everything_with_it(run: Start) -> None:
    # given ranks that ignore SIGTERM
    session = run(DEAF)
    session.started(2)
    # when the supervisor is killed
    os.kill(session.supervisor, signal.SIGKILL)
    # then torchrun ends its ranks at its own limit, the helpers end, and the session is lost
    session.gone(1.0 + 2.0)
    assert liveness(session.paths) == "lost"
    assert not session.events("end")


def test_what_outlives_a_killed_supervisor_can_be_swept(run: Start) -> None:
    # given a daemon, which the supervisor alone could have ended
    session = run(DAEMON)
    session.started(2)
    daemon = int((session.paths.root / "daemon").read_text())
    assert sweep(session.paths) == []
    assert daemon in session.marked(), "a sweep must not touch a living session"
    os.kill(session.supervisor, signal.SIGKILL)
    wait_until(lambda: session.living() == [daemon], "only the daemon is left")
    # when it is swept
    assert [p.pid for p in leftovers(session.paths)] == [daemon]
    assert sweep(session.paths) == []
    # then nothing is left
    assert session.living() == []


@pytest.mark.fault(2, "SIGKILL torchrun", "no process after 2 s; launcher killed")
def test_a_killed_torchrun_is_told_and_its_ranks_are_ended(run: Start) -> None:
    session = run(DEAF)
    session.started(2)
    os.kill(session.pids("agent")[0], signal.SIGKILL)
    session.gone(2.0, helpers=False)
    events = session.ended()
    assert session.exit["cause"] == "launcher_killed"
    assert session.exit["signal"] == "SIGKILL"
    assert "torchrun" in session.exit["message"]
    assert events[-1]["status"] == "failed"
    assert_nothing_left(session)


def test_a_torchrun_that_somebody_else_ends_is_not_a_stop(run: Start) -> None:
    session = run(SLEEP)
    session.started(2)
    os.kill(session.pids("agent")[0], signal.SIGTERM)
    assert session.ended()[-1]["status"] == "failed"
    assert (session.exit["cause"], session.exit["signal"]) == ("launcher_killed", "SIGTERM")
    assert_nothing_left(session)


def test_a_duration_ends_the_run_as_done(run: Start) -> None:
    session = run(SLEEP, duration_s=0.5)
    events = session.ended()
    assert [e["why"] for e in events if e["kind"] == "stop"] == ["duration"]
    assert session.exit["cause"] == "duration"
    assert events[-1]["status"] == "done"
    assert_nothing_left(session)
