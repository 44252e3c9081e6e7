"""Starting children so that they end when the supervisor does, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchtop.launch.cgroup import Cgroup
from torchtop.session.records import start_ticks

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: nothing may be imported or looked up between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Have every orphaned descendant handed to this process instead of init.

    Raises:
        OSError: the kernel refuses.
    """
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@dataclass(frozen=True)
class Child:
    """A child of the supervisor.

    Attributes:
        role: agent, sampler or analyst.
        pid: process id.
        start_ticks: its start, as in `records.start_ticks`.
    """

    role: str
    pid: int
    start_ticks: int | None


def _arm(supervisor: int, entrance: int | None) -> None:
    """In the child, before exec: usual signal actions, and SIGTERM when the supervisor dies."""
    if entrance is not None:
        with contextlib.suppress(OSError):  # a run outside of its group is still a run
            os.write(entrance, b"0")
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_DFL)
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)


def spawn(
    role: str,
    command: Sequence[str],
    *,
    output: Path,
    cwd: Path,
    env: Mapping[str, str],
    group: Cgroup | None = None,
) -> Child:
    """Start a child in an OS session of its own that gets SIGTERM when this process dies.

    The death signal is armed between fork and exec. ``preexec_fn`` is safe here, and only here: the
    supervisor has a single thread, which is also the thread whose death the kernel watches. After
    arming, the child compares its parent with the supervisor, for it may have died before.

    Args:
        role: for the record.
        command: argv.
        output: file that takes stdout and stderr, appended to.
        cwd: working directory.
        env: all of it.
        group: that it is to be in, if it can.

    Raises:
        OSError: the program cannot be started.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    fd = os.open(output, flags, 0o600)
    entrance = group.entrance() if group is not None else None
    arm = partial(_arm, os.getpid(), entrance)
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            close_fds=True,
            preexec_fn=arm,  # noqa: PLW1509 - see above
        )
    finally:
        os.close(fd)
        if entrance is not None:
            os.close(entrance)
    # Reaped by the supervisor's own waitpid(-1): Popen must not wait for it too.
    process.returncode = 0
    return Child(role, process.pid, start_ticks(process.pid))


def reap() -> dict[int, int]:
    """Collect every child that has ended.

    Returns:
        Exit codes by pid, negative for a signal.
    """
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)
