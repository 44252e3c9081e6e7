"""How much longer a device takes for the same work than when it has nothing else to do.

Processes that share a device take turns on it, a few milliseconds each. What a rank computes then
takes about as many times longer, and all of its steps do, so that they say nothing. But work that
is shorter than a turn is done within one, or has to wait for one of the other's; an optimizer is
such work, and has the same to do in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from .excess import Scale, lag_low
from .frontier import OPTIMIZER, PRE_OPTIMIZER, Row

_FASTEST = 10
"""The fastest of so many is taken for what the work takes alone: the very fastest may be a
measuring error."""


class Stretch(NamedTuple):
    """The same work, done again and again; microseconds."""

    mean_us: float
    fast_us: float

    @property
    def factor(self) -> float:
        """How many times longer it takes on average than at its fastest; at least 1."""
        return max(1.0, self.mean_us / self.fast_us)


def stretch(rows: Sequence[Row], alone: bool, scale: Scale) -> Stretch | None:
    """Compare the optimizer of steps in which its kernels were queued already.

    Args:
        rows: the steps of one rank on a GPU.
        alone: whether it is the only rank. Then what follows backward, which is no waiting for
            others, is such work as well.
        scale: the limits of lag.

    Returns:
        None where fewer than half of the steps tell.
    """
    work = sorted(
        row.local_us[OPTIMIZER] + (row.exposed_us if alone else 0)
        for row in rows
        if row.local_us[OPTIMIZER] and _is_queued(row, scale)
    )
    if 2 * len(work) < max(_FASTEST, len(rows)):
        return None
    return Stretch(fmean(work), max(1.0, work[len(work) // _FASTEST]))


def _is_queued(row: Row, scale: Scale) -> bool:
    lag = row.local_lag_us[PRE_OPTIMIZER] if row.local_lag_us is not None else None
    return lag is not None and lag_low(lag, row.lag_width_us) >= scale.ahead_us
