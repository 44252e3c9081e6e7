"""Sessions whose supervisor or directory is gone: told apart, and ended without harm to others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.pty_child import Child
from cli.command import environment
from launch.supervised import Run, wait_until
from torchtop.cli import main
from torchtop.launch import processes
from torchtop.session.paths import SessionPaths, home, list_sessions
from torchtop.session.presence import watching

Start = Callable[..., Run]
Say = Callable[..., tuple[int, str, str]]

LIMIT_S = 60.0
VIEWER = "import sys; from torchtop.cli import main; raise SystemExit(main(sys.argv[1:]))"
LEFT = b"\x1b[?1049l"

SLEEP = """
up()
while True:
    time.sleep(0.05)
"""

DAEMON = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    (root / "daemon").write_text(str(os.getpid()))
    os.rename(root / "daemon", root / "daemon-up")
    while True:
        time.sleep(0.05)
while not (root / "daemon-up").exists():
    time.sleep(0.01)
up()
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def say(state_home: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command; its status and what it printed."""

    def said(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(list(words))
        return (status, *capsys.readouterr())

    return said


def row(say: Say, session: SessionPaths) -> dict[str, Any]:
    listed = json.loads(say("ls", "--json")[1])["sessions"]
    return next(r for r in listed if r["id"] == session.id)


def lose(session: Run) -> int:
    """Kill the supervisor of a session that has a daemon, and wait for what that leaves."""
    daemon = int((session.paths.root / "daemon-up").read_text())
    os.kill(session.supervisor, signal.SIGKILL)
    wait_until(lambda: session.living() == [daemon], "only the daemon is left")
    return daemon


def is_there(pid: int) -> bool:
    return processes.is_running(pid, None)


@pytest.fixture
def bystander(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start processes that no sweep may touch."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**variables: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"], env={**os.environ, **variables}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_live_detached_and_ended_are_told_apart(run: Start, say: Say) -> None:
    session = run(SLEEP, nproc=1)
    session.started(1)
    assert row(say, session.paths)["state"] == "detached"
    assert " detached " in say("ls")[1]

    with watching(session.paths), watching(session.paths):
        assert row(say, session.paths)["state"] == "live"
    assert row(say, session.paths)["state"] == "detached"

    assert say("stop", session.paths.id)[0] == 0
    ended = row(say, session.paths)
    assert (ended["state"], ended["status"]) == ("ended", "stopped")
    # the supervisor has let go of its lock, and is a moment from its own end
    none = {**dict.fromkeys(ended["pids"]), "ranks": {}}
    wait_until(lambda: row(say, session.paths)["pids"] == none, "no process of it is left")
    with watching(session.paths):
        assert row(say, session.paths)["state"] == "ended"


@pytest.mark.fault(29, "stale lock, reused pid", "lost; no foreign process is signalled")
def test_what_a_lost_session_has_left_is_shown_and_ended_by_stop(
    run: Start, say: Say, bystander: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    # given a session that is lost with a daemon of it still there, and another one that lives
    lost, living = run(DAEMON, nproc=1), run(DAEMON, nproc=1)
    lost.started(1)
    living.started(1)
    daemon = lose(lost)
    # and processes that carry its id but are not its own
    copy = tmp_path / "copy" / lost.paths.id
    same_id = bystander(TORCHTOP_SESSION=lost.paths.id, TORCHTOP_SESSION_DIR=str(copy))
    half_marked = bystander(TORCHTOP_SESSION=lost.paths.id)
    # then it is told
    listed = row(say, lost.paths)
    assert listed["state"] == listed["status"] == "lost"
    assert [left["process_pid"] for left in listed["leftovers"]] == [daemon]
    assert row(say, living.paths)["leftovers"] == []
    told = say("ls")[1]
    assert f"(pid {daemon}) of {lost.paths.id}" in told
    assert "torchtop stop --leftovers" in told
    # and the session is not deleted over the head of a process
    assert say("rm", lost.paths.id)[0] == 2
    # when it is stopped
    status, out, _ = say("stop", lost.paths.id)
    # then its own process is gone, and nobody else's
    assert status == 0
    assert f"(pid {daemon})" in out
    assert not is_there(daemon)
    assert len(living.marked()) >= 2
    assert is_there(same_id.pid) and is_there(half_marked.pid)
    # and there is nothing more to stop
    status, _, error = say("stop", lost.paths.id)
    assert status == 2
    assert "its supervisor is gone, and no process of it is left" in error


def test_all_leftovers_are_ended_at_once(
    run: Start,
    say: Say,
    bystander: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    first, second, living = (run(DAEMON, nproc=1) for _ in range(3))
    for session in (first, second, living):
        session.started(1)
    daemons = {lose(first), lose(second)}
    # of one even the directory is gone; and another state directory has leftovers of its own
    shutil.rmtree(second.paths.root)
    other = tmp_path / "other" / "sessions" / first.paths.id
    foreign = bystander(TORCHTOP_SESSION=first.paths.id, TORCHTOP_SESSION_DIR=str(other))

    status, out, _ = say("stop", "--leftovers")

    assert status == 0
    assert all(f"(pid {pid})" in out for pid in daemons)
    assert not any(is_there(pid) for pid in daemons)
    assert is_there(foreign.pid)
    assert is_there(living.supervisor) and len(living.marked()) >= 2
    assert say("stop", "--leftovers")[1].startswith("no lost session has left")


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
def test_a_run_whose_directory_was_deleted_is_told_and_can_be_stopped(run: Start, say: Say) -> None:
    session = run(SLEEP, nproc=1)
    session.started(1)
    supervisor, pids = session.supervisor, session.living()
    shutil.rmtree(session.paths.root)
    # then it is not lost without a word
    listed = json.loads(say("ls", "--json")[1])
    assert listed["sessions"] == [] and listed["leftovers"] == []
    assert [run["session"] for run in listed["without_directory"]] == [session.paths.id]
    assert "was deleted: stop it with: torchtop stop" in say("ls")[1]
    for command in ("attach", "show", "replay", "rm"):
        status, _, error = say(command, session.paths.id)
        assert status == 2 and "runs on, but its directory was deleted: torchtop stop" in error
    # when it is stopped by its id
    status, out, _ = say("stop", session.paths.id)
    # then all of it is gone
    assert status == 0
    assert out.startswith("stopped")
    assert not any(is_there(pid) for pid in [supervisor, *pids])


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
def test_a_session_without_its_description_is_still_listed_and_stopped(
    run: Start, say: Say
) -> None:
    session = run(SLEEP, nproc=1)
    session.started(1)
    session.paths.meta.unlink()

    listed = row(say, session.paths)
    assert (listed["state"], listed["status"]) == ("detached", "running")
    assert f"{session.paths.id}: its session.json is missing" in say("ls")[1]
    assert say("stop", session.paths.id)[0] == 0
    assert "session.json is missing" in say("show")[1]


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
def test_a_watcher_says_what_has_become_of_a_run(
    run: Start, state_home: Path, tmp_path: Path
) -> None:
    # given two runs that are watched as plain lines
    lost, deleted = run(DAEMON, nproc=1), run(DAEMON, nproc=1)  # one script for both
    watchers = []
    for session in (lost, deleted):
        session.started(1)
        watchers.append(watcher(session, state_home))
    # when the supervisor of one is killed, and the directory of the other deleted
    daemon, supervisor = lose(lost), deleted.supervisor
    shutil.rmtree(deleted.paths.root)
    # then each watcher ends with the whole of it in a line
    (status, told), (other_status, other_told) = (ended(watcher) for watcher in watchers)
    assert status == other_status == 1
    assert "supervisor is gone" in told and f"(pid {daemon})" in told
    assert f"torchtop stop {lost.paths.id}" in told
    assert f"was deleted; the run goes on, unseen (its supervisor has pid {supervisor})" in (
        other_told
    )
    assert main(["stop", lost.paths.id]) == main(["stop", deleted.paths.id]) == 0


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
def test_a_viewer_over_a_deleted_directory_leaves_in_order(
    state_home: Path, say: Say, tmp_path: Path
) -> None:
    # given a run that was started with a viewer
    script = tmp_path / "sleeps.py"
    script.write_text("import time\nwhile True:\n    time.sleep(0.05)\n")
    words = ("run", "--device", "cpu", "--nproc", "1", str(script))
    viewer = Child(VIEWER, *words, **environment(state_home))
    ids: list[str] = []
    try:
        begun = (home() / "sessions").glob
        wait_until(lambda: viewer.read(0.1) and [*begun("*/ranks/*.process.jsonl")], "a rank is up")
        # when the directory is deleted under it
        (paths,) = list_sessions()
        ids.append(paths.id)
        shutil.rmtree(paths.root)
        assert viewer.read(LIMIT_S, until=b"DELETED"), viewer.seen[-2000:]
        before = len(viewer.seen)
        os.write(viewer.fd, b"q")
        assert viewer.read(LIMIT_S, until=b"detach"), viewer.seen[before:]
        os.write(viewer.fd, b"d")
        # then leaving tells it in one line, as that of a run that goes on
        assert viewer.wait(LIMIT_S) == 0, viewer.seen[before:]
        told = viewer.seen[before:].rpartition(LEFT)[2].decode()
    finally:
        viewer.close()
        stopped = [say("stop", one)[:2] for one in ids]
    (line,) = [line for line in told.splitlines() if "torchtop" in line]
    assert "was deleted; the run goes on, unseen" in line
    assert line.endswith(f"torchtop stop {paths.id}")
    # and the run did go on, until it was stopped
    assert stopped == [(0, "stopped; its records are gone with its directory\n")]


def watcher(session: Run, home: Path) -> subprocess.Popen[str]:
    words = ["attach", "--no-tui", "--interval", "0.1", session.paths.id]
    started = subprocess.Popen(
        [sys.executable, "-m", "torchtop", *words],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline().startswith("session ")
    return started


def ended(watcher: subprocess.Popen[str]) -> tuple[int, str]:
    told = watcher.communicate(timeout=60)[1]
    assert len(told.splitlines()) == 1, told
    return watcher.returncode, told
