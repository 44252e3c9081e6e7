"""What a session whose supervisor was killed may have left behind, found by its mark."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from torchtop.launch import processes
from torchtop.launch.processes import Process
from torchtop.session.paths import SessionPaths, is_locked

_TERM_S = 2.0
_KILL_S = 5.0
_POLL_S = 0.05


def leftovers(paths: SessionPaths) -> list[Process]:
    """The running processes that carry a session's id in their environment.

    Whatever a rank starts inherits the mark. A process that has rewritten its environment is not
    found, nor one of another user.
    """
    mark = b"\0TORCHTOP_SESSION=" + os.fsencode(paths.id) + b"\0"
    return [p for p in processes.all_processes() if p.state not in "ZX" and _carries(p.pid, mark)]


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return False


def sweep(paths: SessionPaths) -> list[Process]:
    """End what a session without a supervisor has left on this host.

    Takes up to seven seconds where processes do not react.

    Returns:
        What could not be ended; empty also when the session has a supervisor, whose business it is.
    """
    if is_locked(paths.node().lock):
        return []
    left = leftovers(paths)
    for signum, limit_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        until = time.monotonic() + limit_s
        for process in left:
            processes.send(process.pid, process.start_ticks, signum)
        while (left := leftovers(paths)) and time.monotonic() < until:
            time.sleep(_POLL_S)
    return left
