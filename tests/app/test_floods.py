"""Logs that come in floods: the viewer keeps answering, and its memory stays as it is."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.made_session import CASES, make
from app.pty_child import Child
from app.test_terminal import READY, VIEWER

LIMIT_S = 30.0
LINES_A_SECOND = 100_000
FLOOD = """
import os, sys, time
rate, files = int(sys.argv[1]), [open(name, "ab", buffering=0) for name in sys.argv[2:]]
told, due, number = 0, time.monotonic(), 0
print("begins", flush=True)
while os.getppid() == int(os.environ["PARENT"]):
    block = b"".join(b"flood line %d of rank\\n" % n for n in range(number, number + rate // 10))
    number += rate // 10
    for file in files:
        file.write(block)
    due += 0.1
    time.sleep(max(0.0, due - time.monotonic()))
"""
LETTERS = "ZQXWJYKVG"
"""Letters that stand neither in the flood nor in a terminal's escapes, so that an echo is one."""


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[Path]:
    """A session with two ranks that each write 100 000 lines a second."""
    session = make(tmp_path / "sessions" / "s", CASES["slow-loader"], 30)
    files = [str(session / "logs/run_x/attempt_0" / rank / "stdout.log") for rank in "01"]
    writer = subprocess.Popen(
        [sys.executable, "-c", FLOOD, str(LINES_A_SECOND), *files],
        stdout=subprocess.PIPE,
        env={**os.environ, "PARENT": str(os.getpid())},
    )
    assert writer.stdout is not None and writer.stdout.readline()
    yield session
    writer.kill()
    writer.wait()


def memory_bytes(child: Child) -> int:
    status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def lines_in(session: Path) -> int:
    """Lines that one rank has written, by the number in its last one."""
    with (session / "logs/run_x/attempt_0/0/stdout.log").open("rb") as file:
        file.seek(-200, os.SEEK_END)
        return int(file.read().splitlines()[-2].split()[2])


@pytest.mark.fault(
    23, "100k log lines a second from each rank", "keys within 100 ms; memory bounded"
)
def test_keys_are_answered_and_memory_is_bounded(flooded: Path) -> None:
    # given the logs alone on the screen, twice a second, while the flood goes on
    child = Child(VIEWER, str(flooded))
    try:
        assert child.read(LIMIT_S, until=READY), child.seen[-2000:]
        os.write(child.fd, b"l+")
        assert child.read(LIMIT_S, until=b"flood line")
        began, lines = time.monotonic(), lines_in(flooded)
        child.read(2.0)
        memory = memory_bytes(child)
        # when a filter is typed, letter by letter
        os.write(child.fd, b"/")
        assert child.read(LIMIT_S, until=b"cancels")
        took = [echo_s(child, letter) for letter in LETTERS]
        child.read(3.0)
        # then it is answered at once, memory stays, and the flood was one
        assert statistics.median(took) <= 0.1, took
        assert memory_bytes(child) - memory < 10e6
        assert lines_in(flooded) - lines > 0.5 * LINES_A_SECOND * (time.monotonic() - began)
    finally:
        child.close()


def echo_s(child: Child, letter: str) -> float:
    """Seconds until a letter that was typed is on the screen."""
    began = time.monotonic()
    os.write(child.fd, letter.encode())
    assert child.read(LIMIT_S, until=letter.encode())
    return time.monotonic() - began
