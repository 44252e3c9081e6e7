"""How long batches take to get to the device, from what is known of them.

Copies are not measured: they are part of forward, of which computing is a part that backward
tells. They move no more than the link can carry. One from memory that is not pinned keeps its
host, so a host that is ahead of its device by more than forward has not made one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .facts import Facts
from .thresholds import Thresholds
from .window import RankMeans, Window


@dataclass(frozen=True)
class Copies:
    """Copies of one rank's batches to its device; microseconds a step."""

    rank: int
    us: float
    step_bytes: float
    pinned: bool
    on_host: bool
    """Whether the batches are known to come in host memory: loader workers make them, or the probe
    has seen it."""


def copies(window: Window, facts: Facts, limits: Thresholds) -> Copies | None:
    """The rank whose batches take the longest; None where they are not known to be copied."""
    found = [_of_rank(means, window, facts, limits) for means in window.ranks]
    known = [copy for copy in found if copy is not None]
    return max(known, key=lambda copy: copy.us, default=None)


def _of_rank(means: RankMeans, window: Window, facts: Facts, limits: Thresholds) -> Copies | None:
    loader = facts.of(means.rank).loader
    first = loader.get("first_batch")
    size = first.get("bytes") if isinstance(first, dict) else None
    if not isinstance(first, dict) or not isinstance(size, int) or not size:
        return None
    total = float(size) * (batches_per_step(means, facts) or 1)
    if not _is_copied(total, means, facts, window, limits):
        return None
    pinned = bool(first.get("pinned")) or loader.get("pin_memory") is True
    if not pinned and not _holds_host(means):
        return None
    slow = limits.pinned_slow_gb_s if pinned else limits.pageable_slow_gb_s
    fast = limits.pinned_fast_gb_s if pinned else limits.pageable_fast_gb_s
    most, least = total / slow / 1000, total / fast / 1000
    us = max(least, min(most, beyond_computing_us(means, limits)))
    on_host = bool(loader.get("workers")) or first.get("device_bytes") is not None
    return Copies(means.rank, min(us, means.phases_us["forward"]), total, pinned, on_host)


def beyond_computing_us(means: RankMeans, limits: Thresholds) -> float:
    """What forward takes beyond computing it, microseconds, judged by backward."""
    computing = limits.forward_part * means.phases_us["backward"]
    return max(0.0, means.phases_us["forward"] - computing)


def batches_per_step(means: RankMeans, facts: Facts) -> int | None:
    """Batches that a rank's step accumulates over, from the samples of both; None where unknown."""
    first = facts.of(means.rank).loader.get("first_batch")
    samples = first.get("samples") if isinstance(first, dict) else None
    if means.samples is None or not isinstance(samples, int) or samples <= 0:
        return None
    return max(1, round(means.samples / samples))


def _is_copied(
    total: float, means: RankMeans, facts: Facts, window: Window, limits: Thresholds
) -> bool:
    """Whether the link carries the batches, where it tells: they may be on the device already."""
    seen = facts.of(means.rank).gpu.pcie_rx_bytes_per_s
    least = limits.copy_seen * total / (window.step_us / 1e6) + 1e9 * limits.launches_gb_s
    return seen is None or seen >= least


def _holds_host(means: RankMeans) -> bool:
    """Whether a host can have waited for its copies: its lead at the end of forward is forward's.

    Where the lag there is not known, nothing speaks against it.
    """
    lag = means.lag_forward_us
    return lag is None or lag <= 1.1 * means.phases_us["forward"]
