"""What a session whose supervisor was killed may have left behind, found by its mark."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchtop.launch import processes
from torchtop.launch.processes import Process
from torchtop.session.locks import is_locked
from torchtop.session.paths import SessionPaths
from torchtop.session.there import is_dir

_TERM_S = 2.0
_KILL_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Marked:
    """A process that some session has started.

    Attributes:
        process: the process; its pid and start are its identity.
        session: the id of the session.
        directory: where that session's directory is, or was.
        supervisor: the session's supervisor, if that is above the process still.
    """

    process: Process
    session: str
    directory: Path
    supervisor: Process | None


def marked() -> list[Marked]:
    """The running processes on this host that carry a session's mark in their environment.

    Whatever a rank starts inherits the mark. The supervisor is a subreaper: while it lives it is
    above each of its processes, so its pid cannot be another's. A process that has rewritten its
    environment is not found, nor one of another user or of another pid namespace, nor what this
    process itself descends from.
    """
    here = {process.pid: process for process in processes.all_processes()}
    own = {os.getpid(), *_above(os.getpid(), here)}
    found = []
    for process in here.values():
        marks = {} if process.state in "ZX" or process.pid in own else _marks(process.pid)
        session, directory = marks.get("TORCHTOP_SESSION"), marks.get("TORCHTOP_SESSION_DIR")
        if session and directory and _same_namespace(process.pid):
            told = marks.get("TORCHTOP_SUPERVISOR_PID")
            above = (here[p] for p in _above(process.pid, here) if str(p) == told and p in here)
            found.append(Marked(process, session, Path(directory), next(above, None)))
    return found


def all_leftovers(sessions: Path) -> list[Marked]:
    """The processes on this host whose session has no supervisor any more.

    Args:
        sessions: the folder that holds the session directories; what others have is not theirs.
    """
    return [left for left in _leftovers() if _is_below(left, sessions)]


def _leftovers() -> list[Marked]:
    return [
        left
        for left in marked()
        if left.supervisor is None and not is_locked(SessionPaths(left.directory).node().lock)
    ]


def _is_below(left: Marked, sessions: Path) -> bool:
    return left.directory.parent.resolve() == sessions.resolve()


def leftovers(paths: SessionPaths) -> list[Process]:
    """What one session has left on this host; a copy of its directory is another session."""
    return [left.process for left in _leftovers() if is_of(left, paths)]


def is_of(left: Marked, paths: SessionPaths) -> bool:
    """Whether a process belongs to a session."""
    return left.session == paths.id and left.directory.resolve() == paths.root.resolve()


def unseen(sessions: Path) -> list[Marked]:
    """Runs that go on although their directory was deleted, by one process each.

    No file can ask anything of them; a SIGTERM to the supervisor stops them in order.

    Args:
        sessions: the folder that held their directories.
    """
    hidden = (run for run in marked() if run.supervisor and not is_dir(run.directory))
    runs = (run for run in hidden if _is_below(run, sessions))
    return list({run.session: run for run in runs}.values())


def _marks(pid: int) -> dict[str, str]:
    """The variables of a process that torchtop has set; empty when it cannot be read."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    told = (os.fsdecode(pair).partition("=") for pair in pairs if pair.startswith(b"TORCHTOP_"))
    return {name: value for name, _, value in told}


def _above(pid: int, here: dict[int, Process]) -> list[int]:
    """The pids of all that a process descends from, its parent first."""
    above: list[int] = []
    while (process := here.get(pid)) and process.parent and process.parent not in above:
        pid = process.parent
        above.append(pid)
    return above


def _same_namespace(pid: int) -> bool:
    """Whether the pids that a process was told mean the same here."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return False


def stop_unseen(paths: SessionPaths) -> bool:
    """Stop a run whose directory was deleted, by a signal; whether there was one to stop."""
    supervisors = [run.supervisor for run in unseen(paths.root.parent) if is_of(run, paths)]
    sent = [processes.send(s.pid, s.start_ticks, signal.SIGTERM) for s in supervisors if s]
    return any(sent)


def sweep(paths: SessionPaths) -> list[Marked]:
    """End what a session without a supervisor has left on this host.

    Takes up to seven seconds where processes do not react.

    Returns:
        What could not be ended; empty also when the session has a supervisor, whose business it is.
    """
    return _end(lambda left: is_of(left, paths))


def sweep_all(sessions: Path) -> list[Marked]:
    """End what all sessions of a folder without a supervisor have left on this host, as `sweep`.

    Returns:
        What could not be ended.
    """
    return _end(lambda left: _is_below(left, sessions))


def _end(chosen: Callable[[Marked], bool]) -> list[Marked]:
    known: dict[int, Marked] = {}

    def remaining() -> list[Marked]:
        known.update({left.process.pid: left for left in _leftovers() if chosen(left)})
        # A process that is on its way out has no environment any more, but is still there.
        return [left for left in known.values() if _is_there(left.process)]

    left = remaining()
    for signum, limit_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
        until = time.monotonic() + limit_s
        for each in left:
            processes.send(each.process.pid, each.process.start_ticks, signum)
        while (left := remaining()) and time.monotonic() < until:
            time.sleep(_POLL_S)
    return left


def _is_there(process: Process) -> bool:
    return processes.is_running(process.pid, process.start_ticks)
