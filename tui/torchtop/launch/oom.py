"""Whether the kernel has killed for want of host memory while a session ran.

A SIGKILL has no sender that one could ask for. The memory cgroup of the session counts the kernel's
own (``oom_kill``, in version 1 and 2 of cgroups), and the kernel's log names them by pid.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchtop.launch.cgroup import Hierarchy, hierarchies

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_KILLED = re.compile(r"[Oo]ut of memory: Killed process (\d+) ")
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel: only there are the log's pids those that we know."""

_RECORD_BYTES = 8192
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 says 2**63 less a page where there is no limit."""


@dataclass(frozen=True)
class OutOfMemory:
    """The kernel's kills for want of memory since a session began.

    Attributes:
        kills: how many in its memory cgroup.
        pids: those that the kernel's log names.
        limit_bytes: of the cgroup, or None when it has none.
    """

    kills: int = 0
    pids: frozenset[int] = frozenset()
    limit_bytes: int | None = None

    def may_have_killed(self, pid: int) -> bool:
        """Whether a process that was ended by SIGKILL was killed for want of memory."""
        return pid in self.pids or (self.kills > 0 and not self.pids)


class MemoryWatch:
    """Counts from the moment at which it is made.

    Args:
        root: where the file system begins, for tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._folder = _memory_folder(root)
        self._before = self._count()
        self._log = _open_log(root)

    def look(self) -> OutOfMemory:
        """What has been killed so far."""
        kills = max(0, self._count() - self._before)
        return OutOfMemory(kills, frozenset(self._named()), self._limit())

    def close(self) -> None:
        """Let go of the kernel's log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _count(self) -> int:
        for name in ("memory.events", "memory.oom_control"):
            if self._folder is not None:
                found = _COUNT.search(_read(self._folder / name))
                if found:
                    return int(found[1])
        return 0

    def _limit(self) -> int | None:
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(self._folder / name).strip() if self._folder is not None else ""
            if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
                return int(text)
        return None

    def _named(self) -> Iterator[int]:
        """The pids in the kernel's log since the last look: one read gives one record."""
        while self._log is not None:
            try:
                record = os.read(self._log, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # records were overwritten before they were read
            except OSError:
                return
            if not record:
                return
            for pid in _KILLED.findall(record.decode("utf-8", "replace")):
                yield int(pid)


def _memory_folder(root: Path) -> Path | None:
    """The folder of this process's memory cgroup; the nearest above it that keeps count."""
    for hierarchy in hierarchies(root):
        if hierarchy.controllers is None or "memory" in hierarchy.controllers:
            for folder in _upwards(hierarchy):
                names = ("memory.events", "memory.oom_control")
                if any(_COUNT.search(_read(folder / name)) for name in names):
                    return folder
    return None


def _upwards(hierarchy: Hierarchy) -> Iterator[Path]:
    folder = hierarchy.folder
    while True:
        yield folder
        if folder in (hierarchy.mount, folder.parent):
            return
        folder = folder.parent


def _open_log(root: Path) -> int | None:
    """The kernel's log from here on; None where it is not for us to read."""
    with contextlib.suppress(OSError):
        if os.readlink(root / "proc/self/ns/pid") != _INITIAL_PID_NAMESPACE:  # noqa: PTH115
            return None
        fd = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(fd, 0, os.SEEK_END)
        return fd
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
