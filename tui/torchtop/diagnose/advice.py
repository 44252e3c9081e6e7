"""What to change, from facts read at run time; nothing is suggested that is on already."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from . import words
from .candidates import Candidate
from .facts import Facts
from .thresholds import Thresholds
from .window import Window

_MOST = 3
_FIRST_WORKERS = 4
"""Where to begin from none: what PyTorch's own examples use."""


def suggestions(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> tuple[str, ...]:
    """Up to three suggestions, the most useful first."""
    told = {"DATA": _data, "COMM": _comm, "STRAGGLER": _straggler, "LAUNCH": _launch}
    found = told[candidate.kind](candidate, window, facts, limits)
    return tuple([sentence for sentence in found if sentence][:_MOST])


def healthy(window: Window, facts: Facts, limits: Thresholds) -> tuple[str, ...]:
    """What else could make a run faster that waits for nothing."""
    found = [_optimizer(window, facts, limits)]
    return tuple(sentence for sentence in found if sentence)


def _data(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    slowest = max(window.ranks, key=lambda r: r.phases_us["data"]).rank
    return _loader(slowest, window, facts, limits)


def _loader(rank: int, window: Window, facts: Facts, limits: Thresholds) -> list[str | None]:
    loader = facts.of(rank).loader
    more = more_workers(window, facts, rank, limits)
    found: list[str | None] = [more]
    if (more is None and loader) or window.share("data") > limits.data_dominates:
        last = "transforms on the GPU" if window.cuda else "cheaper transforms"
        found.append(f"make each batch cheaper: decode once and cache, smaller files, or {last}")
    if window.cuda and loader.get("pin_memory") is False:
        found.append("pin_memory=True, so that copies to the GPU do not block the host")
    if loader.get("persistent_workers") is False and (loader.get("workers") or 0) > 0:
        batches = loader.get("batches")
        if isinstance(batches, int) and batches <= limits.short_epoch_batches:
            found.append(
                f"persistent_workers=True: an epoch is only {batches} batches, "
                "and each starts its workers anew"
            )
    return found


def more_workers(window: Window, facts: Facts, rank: int, limits: Thresholds) -> str | None:
    """A higher num_workers, where the host has the cores for it.

    As many as make a batch in the time that a step takes without its wait for data: what one
    worker makes does not depend on how many there are, while cores are idle.
    """
    loader, host = facts.of(rank).loader, facts.host_of(rank)
    count = loader.get("workers")
    if not isinstance(count, int) or not host.cores or not host.ranks:
        return None
    if host.cpu_percent is None or host.cpu_percent >= limits.host_busy_percent:
        return None
    room = (host.cores - host.ranks) // host.ranks
    idle_each = (host.idle_cores or 0) // host.ranks
    working = max(1 - window.share("data"), 0.01)
    wanted = math.ceil(count / working) if count else _FIRST_WORKERS
    target = min(wanted, room, count + idle_each)
    if target <= count:
        return None
    idle = f"{host.idle_cores} of {host.cores} cores are idle"
    if count == 0:
        return f"num_workers={target}: batches are then made beside the training; {idle}"
    percent = facts.of(rank).worker_percent
    if percent is not None and percent < limits.worker_busy_percent / 2:
        idle += "; the workers mostly wait, so look at the storage too"
    return f"num_workers={target} instead of {count}: {idle}"


def _comm(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    ddp = facts.ddp
    return [
        "communicate less often: larger batches a rank, or accumulate gradients under no_sync()",
        "communicate less: a bf16 compression hook halves what float32 gradients send"
        if _is_float32(ddp)
        else None,
        "gradient_as_bucket_view=True saves copying gradients out of the buckets"
        if ddp.get("gradient_as_bucket_view") is False
        else None,
        "find_unused_parameters=False (or static_graph=True) lets DDP start reducing earlier"
        if ddp.get("find_unused_parameters") is True and ddp.get("static_graph") is not True
        else None,
    ]


def _is_float32(ddp: Mapping[str, Any]) -> bool:
    count, size = ddp.get("parameters"), ddp.get("gradient_bytes")
    return isinstance(count, int) and count > 0 and size == 4 * count


def _straggler(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    rank, phase = candidate.rank, candidate.phase
    if facts.host_of(rank).is_busy(limits.host_busy_percent) and phase != "data":
        return [
            "leave cores free: fewer ranks, loader workers or threads (OMP_NUM_THREADS) on this "
            "host, and no other programs"
        ]
    if rank is None:
        return ["balance the work: batches of equal cost on all ranks (lengths, image sizes)"]
    known = facts.of(rank)
    if phase == "data":
        found = _loader(rank, window, facts, limits)
        return [f"compare the storage and CPU of rank {rank} with those of the others", *found]
    if phase in ("forward", "backward"):
        return [
            f"move the other processes off the GPU of rank {rank}" if known.strangers else None,
            f"the GPU of rank {rank} is slowed down by {', '.join(known.throttle)}: "
            "check power and cooling"
            if known.throttle
            else None,
            f"check whether rank {rank} computes more than the others: "
            "longer samples, extra work, another model part",
        ]
    return [
        f"look for what rank {rank} alone does {words.doing(phase or 'other')}: "
        "logging, checkpoints, metrics, locks",
        "move it to a thread, or do it on fewer steps",
    ]


def _launch(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    compiled = facts.script.get("compile")
    found: list[str | None] = [
        None
        if compiled
        else 'torch.compile(mode="reduce-overhead"): it fuses kernels and replays CUDA graphs',
        "more work a kernel: a larger batch on each GPU",
        _optimizer(window, facts, limits),
    ]
    if len(window.ranks) > 1:
        found.append("fewer GPUs at the same global batch: each then has more to do a launch")
    return found


def _optimizer(window: Window, facts: Facts, limits: Thresholds) -> str | None:
    if window.share("optimizer") < limits.optimizer_share:
        return None
    optimizer = facts.optimizer
    if optimizer.get("fused") is True or optimizer.get("foreach") is not False:
        return None
    return (
        f"foreach=True or fused=True: the optimizer takes "
        f"{words.percent(window.share('optimizer'))} of the step, one kernel after another"
    )
