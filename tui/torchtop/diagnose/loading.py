"""Why a rank's batches come late: what its loader, its workers and its host were seen doing."""

from __future__ import annotations

import math

from .facts import Facts
from .thresholds import Thresholds
from .window import Window

NO_WORKERS = "no_workers"
TOO_FEW_WORKERS = "too_few_workers"
BUSY_WORKERS = "busy_workers"
HEAD_OF_LINE = "head_of_line"
STORAGE = "storage"
MAIN_PROCESS = "main_process"

_FIRST_WORKERS = 4
"""Where to begin from none: what PyTorch's own examples use."""


def cause(rank: int, window: Window, facts: Facts, limits: Thresholds) -> str | None:
    """Why a rank waits for data; None where what is known does not tell.

    Args:
        rank: the rank that waits the longest.
        window: the window.
        facts: what is known beside the steps.
        limits: thresholds.
    """
    known, host = facts.of(rank), facts.host_of(rank)
    if known.loader.get("workers") == 0:
        return NO_WORKERS
    ready = 0.0 if known.ready is None or not known.queue else known.ready / known.queue
    if ready >= limits.head_of_line:
        means = window.ranks[rank]
        if means.stall_burst < limits.burst:
            return MAIN_PROCESS
        if means.stall_steady >= limits.burst_steady:
            return HEAD_OF_LINE
    busy, percent = host.is_busy(limits.host_busy_percent), known.worker_percent
    if percent is None:
        return BUSY_WORKERS if busy else None
    # On a busy host, a worker that is not given a core uses little of it as well.
    if percent < (limits.worker_waits_percent / 2 if busy else limits.worker_waits_percent):
        return STORAGE
    if busy:
        return BUSY_WORKERS
    return TOO_FEW_WORKERS if more_workers(rank, window, facts, limits) else BUSY_WORKERS


def more_workers(rank: int, window: Window, facts: Facts, limits: Thresholds) -> int | None:
    """A higher num_workers, where the host has the cores for it.

    As many as make a batch in the time that a step takes without its wait for data: what one
    worker makes does not depend on how many there are, while cores are idle.
    """
    loader, host = facts.of(rank).loader, facts.host_of(rank)
    count = loader.get("workers")
    if not isinstance(count, int) or not host.cores or not host.ranks:
        return None
    if host.cpu_percent is None or host.is_busy(limits.host_busy_percent):
        return None
    room = (host.cores - host.ranks) // host.ranks
    idle_each = (host.idle_cores or 0) // host.ranks
    working = max(1 - window.share("data"), 0.01)
    wanted = math.ceil(count / working) if count else _FIRST_WORKERS
    target = min(wanted, room, count + idle_each)
    return target if target > count else None
