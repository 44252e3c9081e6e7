"""How fast a host can issue steps, learnt while it ran ahead of its device.

A rank that waits, for others or for gradients, has a queue that is full whenever its device gets
to it. So its device shows none of what issuing kernels costs its host, and the host, which a full
launch queue holds back, shows no less than the whole step. Were the wait taken away, the step would
still take as long as its host needs. That shows where the host runs ahead: while its lead grows by
much, it cannot have been held back for long.
"""

from __future__ import annotations

import heapq

from .frontier import FrontierStep
from .window import row_lag_us

_GROWS = 0.3
"""Own choice: by this part of a step the lead grows in a step in which the host was free; in steps
of a host that is held back it goes up and down by less."""
_SEEN = 3
"""Own choice: fewer such steps than this may all be of the start, where everything takes longer."""


class Paces:
    """Learns from steps as they come, and keeps the fastest of each rank."""

    def __init__(self) -> None:
        self._last: FrontierStep | None = None
        self._fastest: dict[int, list[int]] = {}

    def learn(self, step: FrontierStep) -> None:
        """Take in the next step."""
        last, self._last = self._last, step
        if last is None or step.step != last.step + 1:
            return
        for rank, (before, row) in enumerate(zip(last.rows, step.rows, strict=True)):
            was, now = row_lag_us(before), row_lag_us(row)
            if was is None or now is None or not row.host_us or row.host_us <= 0:
                continue
            if now - was >= _GROWS * step.step_us > 0:
                kept = self._fastest.setdefault(rank, [])
                heapq.heappush(kept, -row.host_us)
                if len(kept) > _SEEN:
                    heapq.heappop(kept)

    def of(self, rank: int) -> float:
        """The step time that a rank's host needs, microseconds; 0 where that is not known."""
        kept = self._fastest.get(rank, [])
        return -max(kept) if len(kept) == _SEEN else 0
