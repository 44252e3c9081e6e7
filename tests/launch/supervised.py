"""Real sessions for the tests: started as the program starts them, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from torchtop.launch import processes
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session.locks import is_locked
from torchtop.session.paths import SessionPaths
from torchtop.session.tail import Tail

LIMIT_S = 180.0
"""Far above what anything here takes: a machine may be busy with other things."""


def wait_until(condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """The first true value of a condition."""
    until = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.02)
    return value


def unhurried(limit_s: float) -> float:
    """A bound that holds where a core is free, for a machine on which others compute too."""
    waiting = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return limit_s * max(1.0, waiting)


@dataclass
class Run:
    """One session and what can be seen of it."""

    paths: SessionPaths

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        found = Tail(self.paths.node().events).poll()
        return [e for e in found if kind is None or e["kind"] == kind]

    def pids(self, *roles: str) -> list[int]:
        return [e["process_pid"] for e in self.events("process") if e["role"] in roles]

    @property
    def supervisor(self) -> int:
        return int(self.events("header")[0]["pid"])

    @property
    def exit(self) -> dict[str, Any]:
        return self.events("exit")[0]

    def started(self, ranks: int) -> list[int]:
        """Wait until this many ranks have reached the user's script; their pids."""
        wait_until(
            lambda: len(list(self.paths.root.glob("up-*"))) >= ranks or self.events("end"),
            "ranks are up",
        )
        wait_until(lambda: len(self.pids("rank")) >= ranks, "ranks are told")
        return self.pids("rank")

    def ended(self) -> list[dict[str, Any]]:
        """Wait until the supervisor has let go of the lock; its records."""
        wait_until(lambda: not is_locked(self.paths.node().lock), "the supervisor ends")
        return self.events()

    def living(self) -> list[int]:
        """Every running process that belongs to the session, by its records or its environment."""
        told = [
            e["process_pid"]
            for e in self.events("process")
            if processes.is_running(e["process_pid"], e["pid_start_ticks"])
        ]
        return sorted({*told, *self.marked()})

    def marked(self) -> list[int]:
        """The running processes that carry the session's id in their environment."""
        mark = b"TORCHTOP_SESSION=" + self.paths.id.encode() + b"\0"
        return [p.pid for p in processes.all_processes() if p.state != "Z" and _carries(p, mark)]

    def gone(self, limit_s: float, *, helpers: bool = True) -> None:
        """Wait until nothing of the session runs; without `helpers`, nothing of the training."""
        look = self.living if helpers else self.marked
        wait_until(lambda: not look(), "all processes are gone", unhurried(limit_s))

    def read(self, name: str) -> Any:
        """A JSON file that the script left in the session directory."""
        return json.loads((self.paths.root / name).read_text())

    def clean(self) -> None:
        """End what a failed test has left."""
        if is_locked(self.paths.node().lock):
            os.kill(self.supervisor, signal.SIGKILL)
        for pid in self.marked():
            processes.send(pid, None, signal.SIGKILL)


def _carries(process: processes.Process, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{process.pid}/environ").read_bytes() + b"\0"
    except OSError:
        return False


PROLOGUE = """
import json, os, signal, sys, time
from pathlib import Path
rank = int(os.environ["RANK"])
root = Path(os.environ["TORCHTOP_SESSION_DIR"])
def up():
    (root / f"up-{rank}").touch()
"""


def launch(folder: Path, script: str, *args: str, **spec: Any) -> Run:
    """Start a script of two ranks that knows `rank`, `root` and `up()`."""
    path = folder / "train.py"
    path.write_text(PROLOGUE + dedent(script))
    fields: dict[str, Any] = {"nproc": 2, "cwd": str(folder), "shutdown_timeout_s": 1.0, **spec}
    run = LaunchSpec("test", "train.py", "script", str(path), args, **fields)
    return Run(start_session(run))
