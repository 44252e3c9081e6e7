"""Real terminals for tests: tmux servers of their own, with one window each."""

from __future__ import annotations

import itertools
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

from cli.command import environment, torchtop

NUMBERS = itertools.count()
PANES = {
    "large": ("verdict", "GPUs", "step", "throughput", "data", "logs", "host", "events"),
    "small": ("verdict", "GPUs", "step", "throughput", "data"),
}


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._name = f"torchtop-test-{os.getpid()}-{next(NUMBERS)}"

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
def terminals(tmp_path: Path) -> Iterator[Callable[[], Terminal]]:
    """Make terminals of one user; whatever still runs in the end is stopped."""
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux")
    made: list[Terminal] = []

    def make() -> Terminal:
        made.append(Terminal(tmp_path))
        return made[-1]

    yield make
    for terminal in made:
        terminal.close()
    for session in running(tmp_path):
        torchtop("stop", "--kill", session["id"], home=tmp_path, cwd=tmp_path)


def running(home: Path) -> list[dict[str, Any]]:
    rows = json.loads(torchtop("ls", "--json", home=home, cwd=home).stdout)["sessions"]
    return [row for row in rows if row["status"] == "running"]


def panes_of(screen: str) -> set[str]:
    """The panes that a screen has, by the titles on their rules."""
    rules = [line for line in screen.splitlines() if "─ " in line]
    return {pane for pane in PANES["large"] if any(f"─ {pane} " in line for line in rules)}
