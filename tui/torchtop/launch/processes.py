"""Looking at processes in /proc and signalling exactly the one that is meant."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_STATE_FIELD = 0
_PARENT_FIELD = 1
_START_FIELD = 19


@dataclass(frozen=True)
class Process:
    """One process as /proc/PID/stat tells it.

    Attributes:
        pid: process id.
        parent: its parent's.
        start_ticks: when it started, in clock ticks since boot; with the pid, its identity.
        state: one letter (R, S, D, Z, ...).
        name: the kernel's name for it, at most 15 characters.
    """

    pid: int
    parent: int
    start_ticks: int
    state: str
    name: str


def look(pid: int) -> Process | None:
    """A process, or None when there is none of that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode("utf-8", "replace")
        rest = stat[stat.rindex(b")") + 2 :].split()
        return Process(
            pid=pid,
            parent=int(rest[_PARENT_FIELD]),
            start_ticks=int(rest[_START_FIELD]),
            state=rest[_STATE_FIELD].decode("ascii"),
            name=name,
        )
    except (OSError, ValueError, IndexError):
        return None


def all_processes() -> Iterator[Process]:
    """Every process of this pid namespace."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only; Path objects cost 4x here
        if entry.isdigit() and (process := look(int(entry))):
            yield process


def is_running(pid: int, start_ticks: int | None) -> bool:
    """Whether that very process still runs; a zombie does not."""
    process = look(pid)
    if process is None or process.state in "ZX":
        return False
    return start_ticks is None or process.start_ticks == start_ticks


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for a signal, so that the signal cannot end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signum - 1) & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return False


def code_of_zombie(pid: int, start_ticks: int | None) -> int | None:
    """The exit code of a process whose parent has not collected it yet, negative for a signal.

    Returns:
        None where it is not known; also for status 0, which the kernel tells those as well who may
        not know.
    """
    process = look(pid)
    if process is None or process.state != "Z" or start_ticks not in (None, process.start_ticks):
        return None
    try:
        status = int(Path(f"/proc/{pid}/stat").read_bytes().split()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return os.waitstatus_to_exitcode(status) or None


def descendants(root: int, without: Collection[int] = ()) -> list[Process]:
    """All processes below `root`, parents first, zombies included.

    A subreaper keeps every descendant below it, whatever sessions and double forks it goes through.

    Args:
        root: the pid to begin at; itself not among the result.
        without: pids to leave out, with all that is below them.
    """
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child.pid not in without:
                found.append(child)
                todo.append(child.pid)
    return found


def open_pidfd(pid: int) -> int | None:
    """A descriptor that names one process for good and is readable when it has ended.

    Returns:
        None where there is no such process or the kernel has no pidfds (before 5.3).
    """
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def send(pid: int, start_ticks: int | None, signum: int) -> bool:
    """Signal a process, and never another that got its number meanwhile.

    The identity is checked after the pidfd is open: from then on the pidfd cannot change its
    meaning. Without pidfds the check comes as late as it can.

    Returns:
        Whether the signal was sent.
    """
    fd = open_pidfd(pid)
    try:
        process = look(pid)
        if process is None or start_ticks not in (None, process.start_ticks):
            return False
        if fd is None:
            os.kill(pid, signum)
        else:
            signal.pidfd_send_signal(fd, signum)
    except OSError:
        return False
    finally:
        if fd is not None:
            os.close(fd)
    return True
