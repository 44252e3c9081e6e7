"""Gather `Facts` from what the ranks and the samplers have told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from .devices import NodeState, gpu_mean, gpu_value, host_mean
from .facts import Facts, HostFacts, RankFacts
from .frontier import FrontierStep
from .ranks import RankState
from .rows import integer, number


def gather(
    ranks: Mapping[int, RankState],
    nodes: Mapping[str, NodeState],
    steps: Sequence[FrontierStep],
    loader_period_us: Mapping[int, float],
) -> Facts:
    """The facts of the time that a window's steps span.

    Args:
        ranks: by rank.
        nodes: by the name of their directory.
        steps: the window's steps, at least one.
        loader_period_us: see `Facts`.
    """
    by_host = {node.host: node for node in nodes.values()}
    spans = {rank: _span(rank, steps) for rank in ranks}
    first = ranks[min(ranks)]
    known = {
        rank: _rank(state, by_host.get(state.host), spans[rank]) for rank, state in ranks.items()
    }
    hosts: dict[str, list[int]] = {}
    for rank, state in ranks.items():
        hosts.setdefault(state.host, []).append(rank)
    return Facts(
        ranks=tuple(known[rank] for rank in sorted(known)),
        hosts={
            host: _host(by_host.get(host), [known[r] for r in members], spans[members[0]])
            for host, members in hosts.items()
        },
        ddp=first.facts.get("ddp", {}),
        optimizer=first.facts.get("optimizer", {}),
        script=first.facts.get("script", {}),
        loader_period_us=dict(loader_period_us),
    )


def _span(rank: int, steps: Sequence[FrontierStep]) -> tuple[int, int]:
    """The window on the clock of a rank's host, nanoseconds."""
    first = steps[0].rows[rank]
    return first.end_ns - 1000 * (first.host_us or 0), steps[-1].rows[rank].end_ns


def _rank(state: RankState, node: NodeState | None, span: tuple[int, int]) -> RankFacts:
    loader = state.loader()
    workers, prefetch = integer(loader.get("workers")), integer(loader.get("prefetch_factor"))
    ready = [
        beat.ready
        for beat in state.beats
        if beat.ready is not None and span[0] <= beat.mono_ns <= span[1]
    ]
    percents = node.worker_percents(state.rank, *span) if node is not None else []
    return RankFacts(
        rank=state.rank,
        host=state.host,
        loader=loader,
        worker_percent=fmean(percents) if percents else None,
        ready=fmean(ready) if ready else None,
        queue=workers * prefetch if workers and prefetch else None,
        **_gpu(state, node, span),
    )


def _gpu(state: RankState, node: NodeState | None, span: tuple[int, int]) -> dict[str, Any]:
    place = node.position(state.gpu_uuid) if node is not None else None
    if node is None or place is None:
        return {}
    ticks = node.between(*span)
    throttle = gpu_value(ticks[-1], "throttle", place) if ticks else None
    return {
        "util_percent": gpu_mean(ticks, "util_percent", place),
        "sm_active": gpu_mean(ticks, "sm_active", place),
        "sm_clock_mhz": gpu_mean(ticks, "sm_clock_mhz", place),
        "sm_clock_max_mhz": number(node.gpus[place].get("sm_clock_max_mhz")),
        "throttle": tuple(str(name) for name in throttle) if isinstance(throttle, list) else (),
        "gpu_index": integer(node.gpus[place].get("index")),
        "strangers": node.strangers(place, *span),
    }


def _host(node: NodeState | None, members: list[RankFacts], span: tuple[int, int]) -> HostFacts:
    workers = sum(integer(rank.loader.get("workers")) or 0 for rank in members)
    if node is None:
        return HostFacts(ranks=len(members), workers=workers)
    return HostFacts(
        cores=integer(node.header.get("cpu_count")),
        cpu_percent=host_mean(node.between(*span), "cpu_percent"),
        ranks=len(members),
        workers=workers,
    )
