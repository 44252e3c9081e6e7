"""CPU and memory of this host's ranks and of their data-loader workers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtop.session import records

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_WORKER_NAME = b"pt_data_worker"
"""The name that torch gives its loader workers (torch/utils/data/_utils/worker.py)."""

_SPAWNED = b"multiprocessing.spawn"

_SHORTEST_S = 0.5
"""CPU time is counted in ticks of 10 ms: over half a second a percent is good to 2 points."""

_HEADER_BYTES = 1 << 20

_CHILDREN_FILES = Path("/proc/thread-self/children").exists()
"""Whether the kernel lists children (CONFIG_PROC_CHILDREN)."""


@dataclass(frozen=True)
class RankProcess:
    """A rank on this host; the start time tells a pid from a later owner of its number."""

    rank: int
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Usage:
    """What /proc/PID/stat says of a process at one moment."""

    name: bytes
    start_ticks: int
    cpu_ticks: int
    rss_bytes: int


class RankWatcher:
    """Finds ranks by the headers that they leave in a session's ``ranks/`` folder.

    Args:
        folder: the ``ranks/`` folder; it may not exist yet. None watches nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, RankProcess | None] = {}
        self._boot_id = records.boot_id()
        self._host = socket.gethostname()
        self._last: dict[tuple[int, int], tuple[int, float, float | None]] = {}

    def sample(self, now_s: float) -> list[dict[str, Any]]:
        """The ``ranks`` part of a ``processes`` record, by rank; ranks that have gone are left out.

        Args:
            now_s: monotonic time, seconds.
        """
        self._find()
        seen: dict[tuple[int, int], tuple[int, float, float | None]] = {}
        found = []
        for file, process in list(self._known.items()):
            if process is None:
                continue
            usage = read_usage(process.pid)
            if usage is None or usage.start_ticks != process.start_ticks:
                self._known[file] = None  # it has ended, and will not come back
                continue
            workers = [
                self._entry(pid, worker, now_s, seen) for pid, worker in loader_workers(process.pid)
            ]
            entry = self._entry(process.pid, usage, now_s, seen)
            found.append({"rank": process.rank, **entry, "workers": workers})
        self._last = seen
        return sorted(found, key=lambda entry: int(entry["rank"]))

    def _find(self) -> None:
        if self._folder is None:
            return
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - names are the keys
        except OSError:
            return
        for name in names:
            if name.endswith(".process.jsonl") and name not in self._known:
                header = read_header(self._folder / name)
                if header is not None:
                    self._known[name] = self._process(header)

    def _process(self, header: dict[str, Any]) -> RankProcess | None:
        """The rank of a header; None for one of another host, whose pids mean nothing here."""
        if header.get("boot_id") != self._boot_id or header.get("host") != self._host:
            return None
        rank, pid, start = (header.get(key) for key in ("rank", "pid", "pid_start_ticks"))
        if isinstance(rank, int) and isinstance(pid, int) and isinstance(start, int):
            return RankProcess(rank, pid, start)
        return None

    def _entry(
        self,
        pid: int,
        usage: Usage,
        now_s: float,
        seen: dict[tuple[int, int], tuple[int, float, float | None]],
    ) -> dict[str, Any]:
        key = (pid, usage.start_ticks)
        percent = None
        before = self._last.get(key)
        if before is not None and now_s - before[1] < _SHORTEST_S:
            seen[key] = before
            percent = before[2]
        else:
            if before is not None:
                cpu_s = (usage.cpu_ticks - before[0]) / _TICKS_PER_S
                percent = round(max(0.0, 100 * cpu_s / (now_s - before[1])), 1)
            seen[key] = (usage.cpu_ticks, now_s, percent)
        return {"process_pid": pid, "cpu_percent": percent, "rss_bytes": usage.rss_bytes}


def read_header(path: Path) -> dict[str, Any] | None:
    """The first record of a file; None while its line is not complete, or cannot be read."""
    try:
        with path.open("rb") as file:
            line = file.readline(_HEADER_BYTES)
        header = json.loads(line) if line.endswith(b"\n") else None
    except (OSError, ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


def read_usage(pid: int) -> Usage | None:
    """CPU time and memory of a process; None when it has ended, reaped or not."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(fd, 4096)
        finally:
            os.close(fd)
        # The name may hold spaces and brackets: fields are counted from its end (proc_pid_stat(5)).
        name_end = stat.rindex(b")")
        fields = stat[name_end + 2 :].split()
        if fields[0] in (b"Z", b"X"):
            return None
        return Usage(
            name=stat[stat.index(b"(") + 1 : name_end],
            start_ticks=int(fields[19]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            rss_bytes=int(fields[21]) * _PAGE_BYTES,
        )
    except (OSError, ValueError, IndexError):
        return None


def loader_workers(pid: int) -> list[tuple[int, Usage]]:
    """The data-loader workers of a rank.

    Torch names its workers. Older versions do not: there, a worker is a child that was forked from
    the rank (same command line) or started by multiprocessing; compilers and resource trackers are
    neither. A fork server stands between a rank and its workers, hence two levels.
    """
    nearest = _with_usage(children(pid))
    named = _named(nearest)
    if not named:
        named = _named(_with_usage(child for near, _ in nearest for child in children(near)))
    if named or not nearest:
        return named
    own = _command(pid)
    return [
        (child, usage)
        for child, usage in nearest
        if (command := _command(child)) and (command == own or _SPAWNED in command)
    ]


def children(pid: int) -> list[int]:
    """The pids of a process's children, whichever thread started them."""
    if not _CHILDREN_FILES:
        return _children_by_scan(pid)
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - half the cost of Path
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found.extend(map(int, file.read().split()))
        except OSError:  # the thread has ended
            continue
    return found


def _children_by_scan(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _with_usage(pids: Iterable[int]) -> list[tuple[int, Usage]]:
    return [(pid, usage) for pid in pids if (usage := read_usage(pid)) is not None]


def _named(processes: list[tuple[int, Usage]]) -> list[tuple[int, Usage]]:
    return [(pid, usage) for pid, usage in processes if usage.name == _WORKER_NAME]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
