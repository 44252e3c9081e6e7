"""Ranks that cannot be seen: their probe took itself out, perhaps before it had a file of its own.

What it says of that stands in the file of the rank's process.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from . import words
from .rows import world_size
from .verdict import Verdict, undecided


class Unseen:
    """Why, by rank, in the newest attempt.

    Attributes:
        world_size: number of ranks, as the processes tell it; None where none has.
        reasons: why a rank's probe took itself out.
    """

    def __init__(self) -> None:
        self.world_size: int | None = None
        self.reasons: dict[int, str] = {}
        self._attempt = -1
        self._launch: Any = None

    def take(self, rank: int, attempt: int, record: dict[str, Any]) -> None:
        """Take in a record of a process's file."""
        kind = record.get("kind")
        if kind == "header" and record.get("launch") != self._launch:  # another of a command's
            self._launch, self._attempt = record.get("launch"), -1
        if attempt < self._attempt:
            return
        if attempt > self._attempt:
            self._attempt = attempt
            self.reasons.clear()
        if kind == "header":
            self.reasons.pop(rank, None)
            self.world_size = world_size(record.get("world_size")) or self.world_size
        elif kind == "probe" and record.get("disabled"):
            self.reasons[rank] = words.shortened(str(record["disabled"]), 300)

    def verdict(self, ranks: Collection[int]) -> Verdict | None:
        """That some of these ranks cannot be seen, and why; None where none of them is known to."""
        blind = sorted(rank for rank in self.reasons if rank in ranks)
        if not blind:
            return None
        who, why = words.ranks(blind), self.reasons[blind[0]]
        return undecided(
            words.headline(
                f"Cannot see {who}: {why}",
                f"Cannot see {who}: the probe there took itself out",
                f"Cannot see {len(blind)} ranks: the probe there took itself out",
            ),
            *(f"rank {rank}: {self.reasons[rank]}" for rank in blind[:3]),
            "training goes on without it, and without a verdict on what holds the ranks up",
        )
