"""Bring the rows of all ranks together: only steps that every rank recorded count."""

from __future__ import annotations

from collections.abc import Iterable

from .frontier import FrontierStep, Row, account

_MAX_PENDING = 4096
"""Steps that wait for a rank: minutes at the 20 steps a second that a probe records at most."""


class Aligner:
    """Pairs the ranks' rows by step number.

    Ranks may record with different strides, of which the sparser is contained in the denser, and
    may lag behind one another; a step that some rank has passed without recording it is dropped.

    Args:
        world_size: number of ranks.

    Attributes:
        broadcast: whether DDP broadcasts buffers in forward (see `frontier.account`).
    """

    def __init__(self, world_size: int) -> None:
        self.broadcast = False
        self._world_size = world_size
        self._pending: dict[int, dict[int, Row]] = {}
        self._seen = [-1] * world_size

    def add(self, rank: int, rows: Iterable[Row]) -> list[FrontierStep]:
        """Take in rows of one rank.

        Returns:
            The steps that these rows complete, in order.
        """
        complete: list[FrontierStep] = []
        for row in rows:
            if row.step <= self._seen[rank]:
                continue
            self._seen[rank] = row.step
            waiting = self._pending.setdefault(row.step, {})
            waiting[rank] = row
            if len(waiting) == self._world_size:
                del self._pending[row.step]
                in_order = [waiting[index] for index in range(self._world_size)]
                complete.append(account(in_order, self.broadcast))
        self._forget()
        return complete

    def forget(self, rank: int) -> None:
        """Start a rank anew: another process has taken its place."""
        self._seen[rank] = -1
        for waiting in self._pending.values():
            waiting.pop(rank, None)

    def _forget(self) -> None:
        passed = min(self._seen)
        for step in [step for step in self._pending if step <= passed]:
            del self._pending[step]
        while len(self._pending) > _MAX_PENDING:
            del self._pending[min(self._pending)]
