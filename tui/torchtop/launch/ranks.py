"""Watching this node's ranks: their own records, and the moment each one ends."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from torchtop.launch import processes
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Record
from torchtop.session.tail import Tail

_PROCESS_FILE = ".process.jsonl"

_RECENT_BYTES = 64 << 10
"""Enough of a probe's file to hold its last ``beat``."""


@dataclass
class WatchedRank:
    """One rank's process and what it has told so far.

    Attributes:
        header: the header of its ``.process.jsonl``.
        exception: its ``exception`` record, or None.
        exit: its ``exit`` record, or None.
        gone_ns: when it was seen to have ended, or None.
        status: its exit code from waitpid, when it was handed to the supervisor; else None.
        told: whether its ``rank_exit`` has been written.
    """

    header: Record
    exception: Record | None = None
    exit: Record | None = None
    gone_ns: int | None = None
    status: int | None = None
    told: bool = False
    pidfd: int | None = field(default=None, repr=False)

    @property
    def rank(self) -> int:
        """Its number."""
        return int(self.header["rank"])

    @property
    def pid(self) -> int:
        """Its process."""
        return int(self.header["pid"])

    @property
    def stacks_file(self) -> str:
        """The name of the file that it writes its stacks to when asked."""
        return f"{self.rank}-{self.header.get('attempt')}-{self.pid}.stacks"

    @property
    def start_ticks(self) -> int | None:
        """Its start, which with the pid is its identity."""
        ticks: int | None = self.header.get("pid_start_ticks")
        return ticks


class RankWatch:
    """Finds ranks as they start, and sees them end.

    Args:
        paths: the session.
        host: this node, whose ranks are watched.
    """

    def __init__(self, paths: SessionPaths, host: str) -> None:
        self._paths = paths
        self._host = host
        self._tails: dict[str, Tail] = {}
        self._probe_tails: dict[str, Tail] = {}
        self._last_step: int | None = None
        self.by_source: dict[str, WatchedRank] = {}

    @property
    def ranks(self) -> list[WatchedRank]:
        """All ranks that have started, by number."""
        return sorted(self.by_source.values(), key=lambda rank: rank.rank)

    def poll(self) -> list[WatchedRank]:
        """Read what ranks have written and look at who has ended.

        Returns:
            The ranks that were not known before.
        """
        started: list[WatchedRank] = []
        for path in sorted(self._paths.ranks.glob("*" + _PROCESS_FILE)):
            tail = self._tails.setdefault(path.name, Tail(path))
            taken = (self._take(path.name, record) for record in tail.poll())
            started.extend(rank for rank in taken if rank is not None)
        for rank in self.by_source.values():
            if rank.gone_ns is None and not processes.is_running(rank.pid, rank.start_ticks):
                self._mark_gone(rank)
        return started

    def _take(self, source: str, record: Record) -> WatchedRank | None:
        kind = record["kind"]
        known = self.by_source.get(source)
        if kind == "header" and known is None and _is_rank_header(record, self._host):
            rank = WatchedRank(record, pidfd=processes.open_pidfd(record["pid"]))
            self.by_source[source] = rank
            return rank
        if known is not None and kind == "exception":
            known.exception = known.exception or record
        elif known is not None and kind == "exit":
            known.exit = record
        return None

    def _mark_gone(self, rank: WatchedRank) -> None:
        rank.gone_ns = time.monotonic_ns()
        if rank.status is None:
            rank.status = processes.code_of_zombie(rank.pid, rank.start_ticks)
        if rank.pidfd is not None:
            os.close(rank.pidfd)
            rank.pidfd = None

    @property
    def pidfds(self) -> list[int]:
        """Descriptors that become readable at the moment a rank ends."""
        return [r.pidfd for r in self.by_source.values() if r.pidfd is not None]

    def note_status(self, statuses: dict[int, int]) -> None:
        """Take in exit codes from waitpid."""
        for rank in self.by_source.values():
            if rank.status is None and rank.pid in statuses:
                rank.status = statuses[rank.pid]

    def last_step(self) -> int | None:
        """The furthest step that any rank has written down, or None."""
        for path in self._paths.ranks.glob("*.jsonl"):
            if path.name.endswith(_PROCESS_FILE):
                continue
            tail = self._probe_tails.setdefault(path.name, Tail(path, _RECENT_BYTES))
            for record in tail.poll():
                steps = [*_steps_of(record), *filter(None, [self._last_step])]
                self._last_step = max(steps, default=None)
        return self._last_step


def _is_rank_header(record: Record, host: str) -> bool:
    return (
        isinstance(record.get("rank"), int)
        and isinstance(record.get("pid"), int)
        and record.get("host", host) == host
    )


def _steps_of(record: Record) -> list[int]:
    step: Any = record.get("step")
    if record["kind"] == "beat" and isinstance(step, int):
        return [step]
    if record["kind"] == "steps" and isinstance(step, list):
        # A step in the columns is finished: one more has begun.
        return [s + 1 for s in step[-1:] if isinstance(s, int)]
    return []
