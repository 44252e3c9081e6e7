"""Sleeping until a signal comes, a process ends, or the time is up."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection, Iterable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Wakeup:
    """The one place where the supervisor sleeps.

    Signals become bytes in a pipe, so that none is lost between looking and sleeping and no handler
    ever interrupts a write. SIGHUP is ignored: a dropped line must not end a run. SIGCHLD is set to
    its default first, for a caller that ignores it would have the kernel throw exit codes away.
    """

    def __init__(self) -> None:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for signum in (signal.SIGCHLD, *STOP_SIGNALS):
            signal.signal(signum, _only_wake)

    def wait(self, timeout_s: float, pidfds: Iterable[int] = ()) -> Collection[int]:
        """Sleep until something happens.

        Args:
            timeout_s: at most this long.
            pidfds: wake also when one of these processes ends.

        Returns:
            The signals that have come.
        """
        poll = select.poll()
        for fd in (self._read, *pidfds):
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, timeout_s) * 1000)
        try:
            return set(os.read(self._read, 4096))
        except BlockingIOError:
            return ()


def _only_wake(_signum: int, _frame: FrameType | None) -> None:
    """Nothing: the byte in the pipe says it all."""
