"""Ranks whose script has ended, though their processes may still be there.

An interpreter takes seconds to end after the script's code has, and passes no marker meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from .ranks import RankState
from .rows import integer


class Endings:
    """What processes say of their script's end, and supervisors of the processes'."""

    def __init__(self) -> None:
        self._failed: dict[tuple[int, int], bool] = {}

    def take_process(self, name: str, record: dict[str, Any]) -> None:
        """Take in a record of a process's file, called "RANK-ATTEMPT-PID.process.jsonl"."""
        rank, _, pid = (int(part) for part in name.partition(".")[0].split("-")[:3])
        if record.get("kind") == "header":  # perhaps of a program that the process has become
            self._failed.pop((rank, pid), None)
        elif record.get("kind") == "exit":
            self._failed[rank, pid] = record.get("code") not in (0, None)

    def take_event(self, record: dict[str, Any]) -> None:
        """Take in a record of a supervisor."""
        rank, pid = integer(record.get("rank")), integer(record.get("process_pid"))
        if record.get("kind") == "rank_exit" and rank is not None and pid is not None:
            failed = record.get("code") not in (0, None) or record.get("signal") is not None
            self._failed[rank, pid] = failed

    def of(self, ranks: Mapping[int, RankState]) -> dict[int, bool]:
        """The ranks that have ended, and whether with an error."""
        found = {}
        for rank, state in ranks.items():
            pid = int(PurePosixPath(state.source).name.partition(".")[0].split("-")[2])
            if (rank, pid) in self._failed:
                found[rank] = self._failed[rank, pid]
        return found
