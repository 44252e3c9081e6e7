"""Gradient communication."""

from __future__ import annotations

from .. import words
from ..copies import batches_per_step
from ..links import NETWORK, Link, link, traffic_bytes
from .case import Case, Line, busy_host, of_step


def headline(case: Case) -> Line:
    """One sentence."""
    return Line((f"Waiting for gradients {case.share} of each step",))


def evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    window = case.window
    return [
        of_step(window, "exposed_comm", "after backward every rank still waits for the gradients:"),
        _size(case),
        _speed(case, link(window, case.facts, case.limits)),
        busy_host(case) if not window.cuda else None,
    ]


def _size(case: Case) -> str | None:
    size, buckets = case.facts.ddp.get("gradient_bytes"), case.facts.ddp.get("buckets")
    backward = words.ms(case.window.frontier_us["backward"])
    if not isinstance(size, (int, float)) or size <= 0:
        return f"only the {backward} of backward can hide communication"
    count = len(buckets) if isinstance(buckets, list) and buckets else None
    cut = "" if count is None else " in one bucket" if count == 1 else f" in {count} buckets"
    return (
        f"{words.size(size)} of gradients{cut} over {len(case.window.ranks)} ranks; "
        f"only the {backward} of backward can hide that"
    )


def _speed(case: Case, path: Link) -> str | None:
    if path.reached is None:
        return None
    told = f"the all-reduce reaches at least {words.rate(path.reached)}"
    if path.name is not None:
        told += f" over {path.name}"
    if path.limit is not None:
        told += f", which can do {words.rate(path.limit)}"
    sent = case.facts.host_of(None).net_tx_bytes_per_s
    if path.name == NETWORK and sent is not None:
        told += f"; the first host sends {words.rate(sent)} on average"
    if path.unused_nvlinks:
        told += f": the {path.unused_nvlinks} NVLinks carry nothing"
    return told


def advice(case: Case) -> list[str | None]:
    """What to change."""
    ddp, path = case.facts.ddp, link(case.window, case.facts, case.limits)
    return [
        f"find out why NCCL leaves out NVLink (it has {path.unused_nvlinks} links): "
        "NCCL_P2P_DISABLE, containers, NCCL_DEBUG=INFO"
        if path.unused_nvlinks
        else None,
        _buckets(case),
        _less_often(case),
        _compress(case, path),
        _views(case),
        "find_unused_parameters=False (it is on), or static_graph=True: DDP then searches the "
        "graph no more"
        if ddp.get("find_unused_parameters") is True and ddp.get("static_graph") is not True
        else None,
    ]


def _less_often(case: Case) -> str:
    """A larger batch, or more of them, between two reductions."""
    batches = batches_per_step(case.window.ranks[0], case.facts) or 1
    if batches > 1:
        return (
            "communicate less often: a larger batch on each rank, or accumulate over more than "
            f"the {batches} batches of now"
        )
    return (
        "communicate less often: a larger batch on each rank, or accumulate gradients under "
        "no_sync()"
    )


def _buckets(case: Case) -> str | None:
    """A single bucket is reduced only when all gradients are there."""
    size, buckets = case.facts.ddp.get("gradient_bytes"), case.facts.ddp.get("buckets")
    cap = case.facts.ddp.get("bucket_cap_bytes")
    if not isinstance(size, (int, float)) or not isinstance(buckets, list) or len(buckets) != 1:
        return None
    if size < case.limits.few_buckets_mb * 1e6 or not isinstance(cap, int) or cap < size / 2:
        return None
    return (
        f"bucket_cap_mb={max(1, round(size / 8 / 2**20))} instead of {cap / 2**20:.0f}: "
        "all gradients are in one bucket, which cannot start before backward ends"
    )


def _compress(case: Case, path: Link) -> str | None:
    """Half the bytes, where they are float32 still and are what takes the time."""
    ddp, traffic = case.facts.ddp, traffic_bytes(case.window, case.facts)
    count, size = ddp.get("parameters"), ddp.get("gradient_bytes")
    if not case.window.cuda or traffic is None or path.compressed or ddp.get("comm_hook"):
        return None
    if traffic < case.limits.small_message_kb * 1000 or size != 4 * (count or 0):
        return None
    return (
        "communicate less: DDP's bf16_compress_hook halves the "
        f"{words.size(float(size))} of float32 gradients"
    )


def _views(case: Case) -> str | None:
    """Copying gradients out of buckets: read and written once."""
    ddp, limits = case.facts.ddp, case.limits
    size = ddp.get("gradient_bytes")
    if ddp.get("gradient_as_bucket_view") is not False or not isinstance(size, (int, float)):
        return None
    copy_us = 2 * size / limits.copy_back_gb_s / 1000
    if not case.window.cuda or copy_us < (
        limits.copy_back_part * case.window.frontier_us["exposed_comm"]
    ):
        return None
    return (
        "gradient_as_bucket_view=True (it is off) saves copying "
        f"{words.size(size)} out of the buckets after each step"
    )
