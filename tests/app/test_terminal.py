"""The real program in a pseudo-terminal: every way to lose the terminal is an orderly detach."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.made_session import CASES, make
from app.pty_child import ROOT, Child

VIEWER = """
import sys
from pathlib import Path
from app.fake_controller import FakeController
from torchtop.app import run_viewer
session = Path(sys.argv[1])
raise SystemExit(run_viewer(FakeController(session.parent), session))
"""
READY = b"samples/s"
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h")
LIMIT_S = 30.0
SIGNALLED = b"\x03\x1c\x1a"
"""What a terminal makes signals of, once the viewer has given it back."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Start the viewer on a made session, and wait until it shows figures."""
    session = make(tmp_path / "sessions" / "s", CASES["slow-loader"], 30)
    children: list[Child] = []

    def started(**variables: str) -> Child:
        child = Child(VIEWER, str(session), **variables)
        children.append(child)
        assert child.read(LIMIT_S, until=READY), child.seen[-2000:]
        return child

    yield started
    for child in children:
        child.close()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_detaches_and_restores_the_terminal(
    start: Callable[..., Child], number: signal.Signals
) -> None:
    child = start()
    os.kill(child.pid, number)
    assert child.wait(LIMIT_S) == 0
    for sequence in RESTORED:
        assert sequence in child.seen
    assert b"Traceback" not in child.seen


def test_a_terminal_that_is_gone_detaches(start: Callable[..., Child]) -> None:
    child = start()
    child.hang_up()
    assert child.wait(LIMIT_S) == 0


def test_a_stalled_terminal_does_not_hold_the_process(start: Callable[..., Child]) -> None:
    # given a terminal that takes no more output, and more output than it has room for
    child = start()
    child.read = lambda *_args, **_named: False  # type: ignore[method-assign]
    os.write(child.fd, b"z" * 200)
    child.settle(LIMIT_S)
    # when the viewer is told to leave, it does
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0


@pytest.mark.fault(33, "legacy mouse bytes and random bytes", "no crash")
def test_bytes_that_are_no_text_are_no_reason_to_die(start: Callable[..., Child]) -> None:
    child = start()
    os.write(child.fd, b"\x1b[M \xf0@\xff\xfe")
    os.write(child.fd, b"?")
    assert child.read(LIMIT_S, until=b"start a workload")
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0


@pytest.mark.fault(33, "legacy mouse bytes and random bytes", "no crash")
def test_random_bytes_are_keys_or_nothing(start: Callable[..., Child]) -> None:
    child, chance = start(), random.Random(33)
    for _ in range(40):
        if child.wait(0.0) is not None:
            break  # they were a way to leave, too
        os.write(child.fd, chance.randbytes(50).translate(None, SIGNALLED))
        child.read(0.05)
    if child.wait(0.0) is None:
        os.kill(child.pid, signal.SIGTERM)
    assert child.wait(LIMIT_S) == 0
    assert b"Traceback" not in child.seen and b"mistake" not in child.seen


def test_q_then_enter_detaches(start: Callable[..., Child]) -> None:
    child = start()
    os.write(child.fd, b"q")
    assert child.read(LIMIT_S, until=b"detach: leave")
    os.write(child.fd, b"\r")
    assert child.wait(LIMIT_S) == 0


def test_without_utf_8_only_ascii_is_written(start: Callable[..., Child]) -> None:
    child = start(PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    os.write(child.fd, b"9")
    assert child.read(LIMIT_S, until=b"no workload has the key 9")
    os.write(child.fd, b"x")
    assert child.read(LIMIT_S, until=b"kill it at once")
    assert re.search(rb"[\x80-\xff]", child.seen) is None
    assert re.search(rb"\\u[0-9a-f]{4}", child.seen) is None
    assert b"verdict" in child.seen


def test_sixteen_colours_are_enough(start: Callable[..., Child]) -> None:
    child = start(TERM="xterm", COLORTERM="")
    assert b"38;2;" not in child.seen and b"38;5;" not in child.seen
    assert b"\x1b[" in child.seen


def test_no_color_is_kept(start: Callable[..., Child]) -> None:
    child = start(NO_COLOR="1")
    colours = set(re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)[;m]", child.seen))
    assert all(red == green == blue for red, green, blue in colours)
    assert b"Dd" in child.seen


def test_without_a_terminal_it_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", VIEWER, "x"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tui'}:{ROOT / 'tests'}"},
    )
    assert done.returncode == 2
    assert done.stderr == (
        "torchtop: standard input is no terminal; use --no-tui for plain lines\n"
    )


def test_the_mouse_is_left_to_the_terminal(start: Callable[..., Child]) -> None:
    child = start()
    assert b"\x1b[?1003h" not in child.seen


BROKEN = VIEWER.replace(
    "session = ",
    """
from torchtop.app.screens.main import MainScreen
def fail(self): raise RuntimeError("one \\x1b[2J [bold] mistake")
MainScreen.action_redraw = fail
session = """,
)


def test_a_mistake_of_the_viewer_is_one_line_and_a_file(tmp_path: Path) -> None:
    session = make(tmp_path / "sessions" / "s", CASES["slow-loader"], 30)
    child = Child(BROKEN, str(session), TORCHTOP_HOME=str(tmp_path / "home"), size=(300, 24))
    try:
        assert child.read(LIMIT_S, until=READY), child.seen[-2000:]
        os.write(child.fd, b"\x0c")
        assert child.wait(LIMIT_S) == 1
    finally:
        child.close()
    assert b"Traceback" not in child.seen
    for sequence in RESTORED:
        assert sequence in child.seen
    told = child.seen.rpartition(RESTORED[0])[2].decode()
    assert "RuntimeError: one ·[2J [bold] mistake" in told
    assert "training goes on" not in told  # the session has ended
    story = tmp_path / "home" / "viewer-error.txt"
    assert str(story) in told
    assert "Traceback" in story.read_text() and "in fail" in story.read_text()
    assert story.stat().st_mode & 0o077 == 0


def test_keys_in_one_write_leave_no_traceback(start: Callable[..., Child]) -> None:
    child = start()
    os.write(child.fd, b"q")
    assert child.read(LIMIT_S, until=b"detach: leave")
    os.write(child.fd, b"dd")
    assert child.wait(LIMIT_S) == 0
    assert b"Traceback" not in child.seen and b"Error" not in child.seen
