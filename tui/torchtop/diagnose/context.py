"""Gather `Facts` from what the ranks and the samplers have told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from torchtop.session.calls import calls_of, said

from .devices import NodeState, gpu_mean, gpu_parts, gpu_value, host_mean
from .facts import Facts, GpuFacts, HostFacts, RankFacts, Utilization
from .frontier import FrontierStep
from .pace import Paces
from .ranks import RankState, train_alone
from .rows import integer, number
from .script import own_phases
from .thresholds import Thresholds

_MEANS = (
    "util_percent",
    "sm_active",
    "tensor_active",
    "dram_active",
    "sm_clock_mhz",
    "power_w",
    "temperature_c",
    "pcie_rx_bytes_per_s",
)


class Learnt(NamedTuple):
    """What earlier steps have shown, by rank."""

    loader_period_us: Mapping[int, float]
    """See `Facts`."""
    paces: Paces


def gather(
    ranks: Mapping[int, RankState],
    nodes: Mapping[str, NodeState],
    steps: Sequence[FrontierStep],
    learnt: Learnt,
    ready_ns: int,
    limits: Thresholds,
) -> Facts:
    """The facts of the time that a window's steps span.

    Args:
        ranks: by rank.
        nodes: by the name of their directory.
        steps: the window's steps, at least one.
        learnt: what earlier steps have shown.
        ready_ns: when the warm-up had ended, on the clock of the lowest rank's host.
        limits: thresholds.
    """
    by_host = {node.host: node for node in nodes.values()}
    spans = {rank: _span(rank, steps) for rank in ranks}
    first = ranks[min(ranks)]
    count = steps[-1].step + 1 - steps[0].step
    known = {
        rank: _rank(state, by_host.get(state.host), spans[rank], ready_ns, count, limits)
        for rank, state in ranks.items()
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
        precision=first.facts.get("precision", {}),
        compiling=first.facts.get("compile", {}),
        torch=str(first.header.get("torch") or "") or None,
        idlest=_idlest(ranks, hosts, by_host, spans, limits),
        loader_period_us=dict(learnt.loader_period_us),
        own_phases={name: own["share"] for name, own in own_phases(ranks).items()},
        alone=train_alone(ranks),
        host_pace_us={rank: learnt.paces.of(rank) for rank in ranks},
    )


def _span(rank: int, steps: Sequence[FrontierStep]) -> tuple[int, int]:
    """The window on the clock of a rank's host, nanoseconds."""
    first = steps[0].rows[rank]
    return first.end_ns - 1000 * (first.host_us or 0), steps[-1].rows[rank].end_ns


def _rank(
    state: RankState,
    node: NodeState | None,
    span: tuple[int, int],
    ready_ns: int,
    steps: int,
    limits: Thresholds,
) -> RankFacts:
    loader = state.loader()
    workers, prefetch = integer(loader.get("workers")), integer(loader.get("prefetch_factor"))
    ready = [
        beat.ready
        for beat in state.beats
        if beat.ready is not None and span[0] <= beat.mono_ns <= span[1]
    ]
    since_ns = max(ready_ns - int(limits.window_s * 1e9), span[1] - int(limits.retries_s * 1e9))
    retries, retries_s = state.retries_since(since_ns, steps)
    return RankFacts(
        rank=state.rank,
        host=state.host,
        loader=loader,
        worker_percent=_mean(node.worker_percents(state.rank, *span)) if node else None,
        cpu_percent=_mean(node.rank_percents(state.rank, *span)) if node else None,
        ready=_mean(ready),
        queue=workers * prefetch if workers and prefetch else None,
        gpu_uuid=state.gpu_uuid,
        gpu=_gpu(state, node, span, limits),
        retries=retries,
        retries_s=retries_s,
        reserved_bytes=integer(state.memory[-1].get("reserved_bytes")) if state.memory else None,
        waiting=_waiting(state),
    )


def _waiting(state: RankState) -> tuple[str, ...] | None:
    """The calls that the last inspection of a step found, unless it found out nothing."""
    told = state.inspected
    if not told or told.get("problem") is not None:
        return None
    return tuple(said(call) for call in calls_of(told))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _gpu(
    state: RankState, node: NodeState | None, span: tuple[int, int], limits: Thresholds
) -> GpuFacts:
    place = node.position(state.gpu_uuid) if node is not None else None
    if node is None or place is None:
        return GpuFacts()
    ticks = node.between(*span)
    if len(ticks) < limits.device_ticks:
        ticks = []
    known = node.gpus[place]
    used = [integer(gpu_value(tick, "memory_used_bytes", place)) for tick in ticks]
    means = {name: gpu_mean(ticks, name, place) for name in _MEANS}
    return GpuFacts(
        index=integer(known.get("index")),
        name=str(known.get("name") or ""),
        sm_clock_max_mhz=number(known.get("sm_clock_max_mhz")),
        power_limit_w=number(known.get("power_limit_w")),
        throttle=gpu_parts(ticks, "throttle", place),
        nvlink_links=integer(known.get("nvlink_links")),
        nvlink_bytes_per_s=gpu_mean(ticks, "nvlink_tx_bytes_per_s", place),
        memory_used_bytes=tuple(value for value in used if value is not None),
        memory_total_bytes=integer(known.get("memory_total_bytes")),
        strangers=node.strangers(place, *span),
        **means,
    )


def _idlest(
    ranks: Mapping[int, RankState],
    hosts: Mapping[str, Sequence[int]],
    by_host: Mapping[str, NodeState],
    spans: Mapping[int, tuple[int, int]],
    limits: Thresholds,
) -> Utilization | None:
    """Utilization of the least busy GPU in each tick, on the host where that is the least."""
    found: list[Utilization] = []
    for host, members in hosts.items():
        node = by_host.get(host)
        if node is None:
            continue
        found_at = (node.position(ranks[rank].gpu_uuid) for rank in members)
        places = {place for place in found_at if place is not None}
        told = [
            [number(gpu_value(tick, "util_percent", place)) for place in places]
            for tick in node.between(*spans[members[0]])
        ]
        known = [[value for value in values if value is not None] for values in told]
        least = [min(values) for values in known if values and len(values) == len(places)]
        if len(least) >= max(2, limits.device_ticks):
            found.append(Utilization.of(least))
    return min(found, key=lambda utilization: utilization.mean, default=None)


def _host(node: NodeState | None, members: list[RankFacts], span: tuple[int, int]) -> HostFacts:
    workers = sum(integer(rank.loader.get("workers")) or 0 for rank in members)
    if node is None:
        return HostFacts(ranks=len(members), workers=workers)
    ticks = node.between(*span)
    return HostFacts(
        cores=integer(node.header.get("cpu_count")),
        cpu_percent=host_mean(ticks, "cpu_percent"),
        ranks=len(members),
        workers=workers,
        disk_read_bytes_per_s=host_mean(ticks, "disk_read_bytes_per_s"),
        net_tx_bytes_per_s=host_mean(ticks, "net_tx_bytes_per_s"),
    )
