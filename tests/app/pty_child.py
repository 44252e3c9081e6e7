"""A Python program in a pseudo-terminal, for tests and measurements of the real thing."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A program in a pseudo-terminal; what it writes is counted and its end is kept.

    Args:
        code: Python to run.
        arguments: its arguments.
        size: columns and lines of the terminal.
        variables: further environment.
    """

    def __init__(
        self, code: str, *arguments: str, size: tuple[int, int] = (80, 24), **variables: str
    ) -> None:
        self.started = time.monotonic()
        self.bytes = 0
        self.seen = b""
        self.status: int | None = None
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": f"{ROOT / 'tui'}:{ROOT / 'tests'}",
        }
        environment.pop("NO_COLOR", None)
        environment.update(variables)
        pid, self.fd = pty.fork()
        if pid == 0:
            command = [sys.executable, "-c", code, *arguments]
            os.execve(sys.executable, command, environment)
        self.pid = pid
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, seconds: float, until: bytes = b"") -> bool:
        """Take in what it writes, for a time or until a text was written."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.fd], [], [], left)[0]:
                continue
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                return False
            self.bytes += len(data)
            self.seen = (self.seen + data)[-(1 << 18) :]
            if until and until in self.seen:
                return True
        return not until

    def cpu_s(self) -> float:
        """Processor time of the whole process so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def wait(self, seconds: float) -> int | None:
        """Its exit status within a time, negative after a signal; None when it is still there."""
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            self._drain(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def _drain(self, seconds: float) -> None:
        if self.fd >= 0:
            self.read(seconds)
        else:
            time.sleep(seconds)

    def settle(self, seconds: float) -> None:
        """Wait until it uses no more processor time (or the time is over)."""
        end, used = time.monotonic() + seconds, -1.0
        while used != (used := self.cpu_s()) and time.monotonic() < end:
            time.sleep(0.1)

    def hang_up(self) -> None:
        """Close the terminal under it, as a dropped line does."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """End it and wait."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)
