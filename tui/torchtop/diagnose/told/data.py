"""Waiting for data."""

from __future__ import annotations

from .. import loading, words
from ..window import Window
from .case import Case, Line, of_step

_WHY = {
    loading.NO_WORKERS: "; num_workers=0",
    loading.TOO_FEW_WORKERS: "; too few workers",
    loading.BUSY_WORKERS: "; workers lack cores",
    loading.STORAGE: "; workers mostly wait",
    loading.HEAD_OF_LINE: "; some batches are late",
    loading.MAIN_PROCESS: "; fetching is slow",
}
_QUEUED = {
    loading.HEAD_OF_LINE: ", behind one that is late",
    loading.MAIN_PROCESS: ": the training process is slow to take them",
}


def headline(case: Case) -> Line:
    """One sentence."""
    why = _WHY.get(case.candidate.cause or "", "")
    return Line((f"Waiting for data {case.share} of each step",), why)


def evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    window = case.window
    what = "the GPU waits for a batch" if window.cuda else "waiting for a batch takes"
    rank = worst(case)
    return [
        of_step(window, "data", what) + _by_rank(window),
        _queued(case, rank),
        _working(case, rank),
        disk(case, rank),
        _bursts(case),
    ]


def _by_rank(window: Window) -> str:
    """The waits of the ranks. Where these are late by turns, all lose more than any of them."""
    waits = [rank.phases_us["data"] for rank in window.ranks]
    if len(waits) < 2:
        return ""
    turns = " in turns" if max(waits) < 0.85 * window.frontier_us["data"] else ""
    return f"; the ranks wait {words.ms_range(waits)}{turns}"


def worst(case: Case) -> int:
    """The rank that waits the longest."""
    return max(case.window.ranks, key=lambda rank: rank.phases_us["data"]).rank


def queue(case: Case, rank: int) -> str | None:
    """How full a rank's loader queue is."""
    known = case.facts.of(rank)
    if known.ready is None or not known.queue:
        return None
    return (
        f"ready batches in the loader queue of rank {rank}: "
        f"{known.ready:.1f} of {known.queue} on average"
    )


def _queued(case: Case, rank: int) -> str | None:
    told = queue(case, rank)
    return told and told + _QUEUED.get(case.candidate.cause or "", "")


def _working(case: Case, rank: int) -> str | None:
    told, waits = workers(case, rank), case.candidate.cause == loading.STORAGE
    return f"{told}: they wait for something else than a core" if told and waits else told


def workers(case: Case, rank: int) -> str | None:
    """How busy a rank's loader workers and its host are."""
    known, host = case.facts.of(rank), case.facts.host_of(rank)
    count = known.loader.get("workers")
    if count == 0:
        return "batches are made in the training process itself (num_workers=0)"
    parts = []
    if known.worker_percent is not None and count:
        parts.append(
            f"loader workers at {known.worker_percent:.0f} % of a core each ({count} workers)"
        )
    if host.idle_cores is not None:
        parts.append(f"{host.idle_cores} of {host.cores} cores idle")
    return ", ".join(parts) or None


def disk(case: Case, rank: int) -> str | None:
    """How much a host reads, where its workers wait."""
    if case.candidate.cause != loading.STORAGE:
        return None
    speed = case.facts.host_of(rank).disk_read_bytes_per_s
    if speed is None or speed < case.limits.disk_busy_mb_s * 1e6:
        return None
    return f"its disks read {speed / 1e6:,.0f} MB/s"


def _bursts(case: Case) -> str | None:
    """Whether steps are bursty: most are short and a few long."""
    ordered = sorted(case.window.durations_us)
    middle = ordered[len(ordered) // 2]
    if ordered[-1] < 2 * middle:
        return None
    return f"bursty: the median step takes {words.ms(middle)}, the longest {words.ms(ordered[-1])}"


def advice(case: Case) -> list[str | None]:
    """What to change."""
    return of_rank(case, worst(case), case.candidate.cause)


def of_rank(case: Case, rank: int, cause: str | None) -> list[str | None]:
    """What to change in the loader of a rank.

    Args:
        case: the case.
        rank: the rank.
        cause: why it waits (see `loading`).
    """
    loader = case.facts.of(rank).loader
    found: list[str | None] = []
    if cause == loading.HEAD_OF_LINE:
        found += _late_batches(case, rank)
    elif cause == loading.MAIN_PROCESS:
        found += _slow_fetch(case, rank)
    else:
        more = _more(case, rank, cause)
        found.append(more)
        if cause == loading.STORAGE:
            found.append(
                "read faster: keep the data on a local disk or in memory, in few large files"
            )
        elif (more is None and loader) or case.window.share("data") > case.limits.data_dominates:
            last = "transforms on the GPU" if case.window.cuda else "cheaper transforms"
            found.append(
                f"make each batch cheaper: decode once and cache, smaller files, or {last}"
            )
    if cause != loading.MAIN_PROCESS and _could_pin(case, rank):
        found.append("pin_memory=True (it is off), so that copies to the GPU do not block the host")
    return [*found, _persistent(case, rank)]


def _could_pin(case: Case, rank: int) -> bool:
    """Whether batches come to host memory that is not pinned, on the way to a GPU."""
    loader = case.facts.of(rank).loader
    first = loader.get("first_batch")
    there = isinstance(first, dict) and (first.get("pinned") is True or first.get("bytes") == 0)
    return case.window.cuda and loader.get("pin_memory") is False and not there


def _more(case: Case, rank: int, cause: str | None) -> str | None:
    target = loading.more_workers(rank, case.window, case.facts, case.limits)
    unknown = case.facts.host_of(rank).cpu_percent is None
    if target is None and cause == loading.NO_WORKERS and unknown:
        return "num_workers above 0 (it is 0) where cores are idle: that makes batches beside"
    if target is None:
        return None
    host, count = case.facts.host_of(rank), case.facts.of(rank).loader.get("workers")
    idle = f"{host.idle_cores} of {host.cores} cores are idle"
    if count == 0:
        return f"num_workers={target}: batches are then made beside the training; {idle}"
    if cause == loading.STORAGE:
        idle = "workers that wait need no core, and more of them wait side by side"
    return f"num_workers={target} instead of {count}: {idle}"


def _late_batches(case: Case, rank: int) -> list[str | None]:
    loader = case.facts.of(rank).loader
    prefetch = loader.get("prefetch_factor")
    more = f"prefetch_factor={2 * prefetch} instead of {prefetch}" if prefetch else None
    return [
        "look for the samples that take long (large files, long sequences), and make them cheaper",
        f"{more}: more batches are ready when one is late" if more else None,
        None
        if loader.get("in_order") is False or case.facts.has_torch(2, 6) is False
        else "in_order=False lets batches that are ready go first"
        + ("" if case.facts.has_torch(2, 6) else " (DataLoader of torch 2.6 or later)"),
    ]


def _slow_fetch(case: Case, rank: int) -> list[str | None]:
    return [
        "pin_memory=True (it is off): a thread then takes batches from the workers beside training"
        if _could_pin(case, rank)
        else None,
        "return few large tensors from the dataset and collate in the workers: "
        "lists and objects are unpickled in next()",
    ]


def _persistent(case: Case, rank: int) -> str | None:
    loader = case.facts.of(rank).loader
    batches = loader.get("batches")
    if loader.get("persistent_workers") is not False or not loader.get("workers"):
        return None
    if not isinstance(batches, int) or batches > case.limits.short_epoch_batches:
        return None
    return (
        f"persistent_workers=True (it is off): an epoch is only {batches} batches, "
        "and each starts its workers anew"
    )
