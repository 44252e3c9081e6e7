"""Whether there is a run to judge: ranks that are missing, stand still, or are not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from . import report, words
from .devices import NodeState
from .frontier import FrontierStep
from .ranks import RankState
from .rows import integer, number
from .thresholds import Thresholds
from .verdict import Verdict, undecided
from .window import Window

_FRESH_NS = 5_000_000_000
"""A rank whose last beat is older than this (ten beats) has ended, rather than stalled."""
_BETWEEN = ("O1", "DX", "E0", "E1")
"""Markers after which a rank may be doing something that is no training."""
_MOST_RANKS = 4
"""Ranks that are named in the evidence."""

Ranks = Mapping[int, RankState]


def age_ns(ranks: Ranks, state: RankState, then_ns: int, now_ns: int) -> int:
    """Age of a moment on a rank's host.

    Monotonic clocks of different boots do not compare; their wall clocks, paired with them in the
    headers, do as well as they are synchronised.

    Args:
        ranks: all of them; `now_ns` is on the clock of the lowest one's host.
        state: the rank.
        then_ns: on its host's monotonic clock.
        now_ns: the present.
    """
    reference, header = ranks[min(ranks)].header, state.header
    if header.get("boot_id") == reference.get("boot_id"):
        return max(0, now_ns - then_ns)
    return max(0, now_ns + _wall_offset_ns(reference) - then_ns - _wall_offset_ns(header))


def _wall_offset_ns(header: dict[str, Any]) -> int:
    wall, mono = number(header.get("wall_s")), integer(header.get("mono_ns"))
    return 0 if wall is None or mono is None else int(wall * 1e9) - mono


def marker_age_s(ranks: Ranks, state: RankState, now_ns: int) -> float | None:
    """Seconds since a rank passed its last marker."""
    if not state.beats or state.beats[-1].marker_ns is None:
        return None
    return age_ns(ranks, state, state.beats[-1].marker_ns, now_ns) / 1e9


def nothing_to_judge(
    ranks: Ranks,
    nodes: Mapping[str, NodeState],
    world_size: int | None,
    window: Window | None,
    steps: Sequence[FrontierStep],
    *,
    now_ns: int,
    limits: Thresholds,
) -> Verdict | None:
    """Why the steps at hand do not say what the run does now; None where they do.

    Args:
        ranks: by rank.
        nodes: by the name of their directory.
        world_size: how many ranks there should be.
        window: the window, or None.
        steps: its steps.
        now_ns: the present, on the clock of the lowest rank's host.
        limits: thresholds.
    """
    if not ranks or world_size is None:
        return undecided("No rank has finished a backward pass yet")
    absent = [rank for rank in range(world_size) if rank not in ranks]
    if absent:
        return undecided(
            f"Nothing has been heard of {words.ranks(absent)} yet",
            f"{len(ranks)} of {world_size} ranks report",
        )
    patience_s = _patience_s(ranks, window, limits)
    hung = _hung(ranks, nodes, now_ns, patience_s, limits)
    return hung or _unmeasured(ranks, steps, now_ns, max(limits.unmeasured_s, patience_s))


def _patience_s(ranks: Ranks, window: Window | None, limits: Thresholds) -> float:
    """How long ranks may pass no marker: longer than their steps and pauses have ever taken."""
    if window is None or window.from_step < limits.warmup_steps:
        return max(limits.hung_s, limits.hung_startup_s)
    longest_us = max((p.duration_us for s in ranks.values() for p in s.pauses), default=0)
    longest_step_us = max(window.durations_us, default=0)
    return max(
        limits.hung_s,
        limits.hung_steps * window.step_us / 1e6,
        limits.hung_pause * max(longest_us, longest_step_us) / 1e6,
    )


def _is_alive(ranks: Ranks, state: RankState, now_ns: int) -> bool:
    """Whether a rank's probe still writes."""
    return bool(state.beats) and age_ns(ranks, state, state.beats[-1].mono_ns, now_ns) <= _FRESH_NS


def _has_process(state: RankState, nodes: Mapping[str, NodeState], now_ns: int) -> bool:
    """Whether the sampler of its host still sees a rank's process."""
    pid = integer(state.header.get("pid"))
    return any(n.host == state.host and n.has_process(pid, now_ns) for n in nodes.values())


def _hung(
    ranks: Ranks,
    nodes: Mapping[str, NodeState],
    now_ns: int,
    patience_s: float,
    limits: Thresholds,
) -> Verdict | None:
    """Ranks that have all passed no marker for long, while at least one of them lives."""
    told = {rank: marker_age_s(ranks, state, now_ns) for rank, state in ranks.items()}
    ages = {rank: age for rank, age in told.items() if age is not None}
    if len(ages) < len(ranks) or min(ages.values()) < patience_s:
        return None
    writes = {rank for rank, state in ranks.items() if _is_alive(ranks, state, now_ns)}
    lives = writes | {r for r, state in ranks.items() if _has_process(state, nodes, now_ns)}
    if not lives:
        return None
    places = Counter(ranks[rank].doing() for rank in ages)
    odd = [rank for rank in sorted(ages) if places[ranks[rank].doing()] == 1]
    alone = odd[0] if len(odd) == 1 and len(ages) > 2 else None
    oldest = sorted(ages, key=lambda rank: (rank != alone, -ages[rank]))
    may_save = min(ages.values()) < limits.unmeasured_s and any(
        state.beats[-1].marker in _BETWEEN for state in ranks.values()
    )
    return Verdict(
        "HUNG",
        "warn" if may_save else "critical",
        None,
        f"No rank has moved for {min(ages.values()):.0f} s" + _where(ranks, places, alone),
        rank=alone,
        evidence=(
            *(
                _last_seen(rank, ranks[rank], ages[rank], rank in writes, rank in lives)
                for rank in oldest[:_MOST_RANKS]
            ),
            *(("a long checkpoint would look the same so far",) if may_save else ()),
        ),
        advice=_unhang(ranks, oldest[0], len(places) > 1),
        cause="silent" if len(writes) < len(ranks) else None,
    )


def _where(ranks: Ranks, places: Counter[str | None], alone: int | None) -> str:
    if alone is not None:
        rest = next(place for place, count in places.items() if count > 1)
        return f": rank {alone} is {ranks[alone].doing()}, the others {rest}"
    if len(places) == 1:
        only = next(iter(places))
        who = {1: "it is", 2: "both are"}.get(len(ranks), f"all {len(ranks)} are")
        return f": {who} {only}"
    return ""


def _last_seen(rank: int, state: RankState, age_s: float, writes: bool, lives: bool) -> str:
    seen = f"rank {rank} was last seen {state.doing()}, {age_s:.0f} s ago"
    if not writes:
        seen += "; it writes nothing any more" if lives else "; its process is gone"
    return seen


def _unhang(ranks: Ranks, rank: int, differ: bool) -> tuple[str, ...]:
    """How to find out why."""
    found = [
        "torchtop stacks, or t in the viewer, shows where each rank's Python code stands",
        "look for a collective that not all ranks call: in `if rank == 0:`, or after a loop that "
        "one rank leaves early"
        if differ
        else None,
        "NCCL_DEBUG=INFO and TORCH_NCCL_TRACE_BUFFER_SIZE tell which collective is stuck"
        if ranks[rank].backend == "nccl"
        else None,
    ]
    return tuple(text for text in found if text)


def _unmeasured(
    ranks: Ranks, steps: Sequence[FrontierStep], now_ns: int, patience_s: float
) -> Verdict | None:
    """A run that goes on, but of which the probes tell no steps any more."""
    off = report.probe(ranks)["disabled"]
    if off is not None:
        return undecided(f"The run is no longer measured: {off}")
    first = ranks[min(ranks)]
    if not steps or not _is_alive(ranks, first, now_ns):
        return None
    age_s = age_ns(ranks, first, steps[-1].rows[first.rank].end_ns, now_ns) / 1e9
    if age_s < patience_s:
        return None
    return undecided(
        f"No step has been recorded for {age_s:.0f} s",
        f"rank {first.rank} was last seen {first.doing()}",
    )
