"""The real screen in a real terminal: watch, switch with a key, lose the line, come back."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import environment, processes_of, torchtop

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")

PANES = {
    "large": ("verdict", "GPUs", "step", "throughput", "data", "logs", "host", "events"),
    "small": ("verdict", "GPUs", "step", "throughput", "data"),
}


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._name = f"torchtop-test-{os.getpid()}"

    def open(self, *words: str, columns: int = 200, lines: int = 50) -> None:
        """Run torchtop in a window of that size."""
        command = shlex.join([sys.executable, "-m", "torchtop", *words])
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", *size, command)

    def press(self, *keys: str) -> None:
        """Type keys, in tmux's names."""
        self._tmux("send-keys", "-t", "t", *keys)

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size."""
        self._tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(lines))

    def screen(self) -> str:
        """What the window shows."""
        return self._tmux("capture-pane", "-p", "-t", "t")

    def wait_for(self, seen: Callable[[str], bool], what: str, timeout_s: float = 90.0) -> str:
        """Wait until the screen shows something; returns the screen."""
        until = time.monotonic() + timeout_s
        while not seen(screen := self.screen()):
            assert time.monotonic() < until, f"no {what} on the screen:\n{screen}"
            time.sleep(0.2)
        return screen

    def close(self) -> None:
        """Close the terminal, as a lost line does."""
        subprocess.run(["tmux", "-L", self._name, "kill-server"], check=False, capture_output=True)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *words],
            env=environment(self.home, XDG_CACHE_HOME=str(self.home / "cache")),
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()
    for session in running(tmp_path):
        torchtop("stop", "--kill", session["id"], home=tmp_path, cwd=tmp_path)


def running(home: Path) -> list[dict[str, Any]]:
    rows = json.loads(torchtop("ls", "--json", home=home, cwd=home).stdout)["sessions"]
    return [row for row in rows if row["status"] == "running"]


def trains(screen: str, workload: str) -> bool:
    header = screen.splitlines()[0]
    return workload in header and "running" in header and "samples/s" in screen


def has_panes(screen: str, size: str) -> bool:
    titles = [line for line in screen.splitlines() if "─" in line]
    return all(any(f" {pane} " in line for line in titles) for pane in PANES[size])


def test_switch_by_key_then_lose_the_terminal_then_come_back(terminal: Terminal) -> None:
    home = terminal.home

    # Given a workload that trains on a large screen, with values in every pane
    terminal.open("run", "--device", "cpu", "--nproc", "2", "slow-loader", "-o", "batch=64")
    screen = terminal.wait_for(lambda s: trains(s, "slow-loader"), "throughput")
    assert has_panes(screen, "large"), screen
    assert "synthetic data" in screen
    assert "r0" in screen
    assert "r1" in screen

    # Then a small one shows its five
    terminal.resize(80, 24)
    terminal.wait_for(lambda s: has_panes(s, "small") and "samples/s" in s, "five panes")

    # When another workload's key is pressed and confirmed
    (first,) = running(home)
    terminal.press("2")
    terminal.wait_for(lambda s: "Stop it and start compute-heavy" in s, "question")
    terminal.press("y")

    # Then the first is gone before the second runs
    terminal.wait_for(lambda s: trains(s, "compute-heavy"), "second workload")
    assert processes_of(first["id"]) == []
    (second,) = running(home)
    assert second["workload"] == "compute-heavy"

    # When the terminal is closed, the training goes on
    terminal.close()
    rank = second["pids"]["ranks"]["0"]
    assert Path(f"/proc/{rank}").exists()
    assert [row["id"] for row in running(home)] == [second["id"]]

    # And whoever comes back sees its history
    terminal.open("attach")
    terminal.wait_for(lambda s: trains(s, "compute-heavy") and "2 ranks up" in s, "history")

    # When it is stopped from a shell, nothing is left
    stopped = torchtop("stop", home=home, cwd=home)
    assert stopped.returncode == 0, stopped.stderr
    assert processes_of(second["id"]) == []
    terminal.wait_for(lambda s: "stopped" in s, "end", 20.0)
