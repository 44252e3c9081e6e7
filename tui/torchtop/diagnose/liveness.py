"""Whether there is a run to judge: ranks that are missing, stand still, or are not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import report, words
from .frontier import FrontierStep
from .ranks import RankState
from .rows import integer, number
from .thresholds import Thresholds
from .verdicts import Verdict, undecided
from .window import Window

_FRESH_NS = 5_000_000_000
"""A rank whose last beat is older than this (ten beats) has ended, rather than stalled."""
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
        world_size: how many there should be.
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
    mean_s = window.step_us / 1e6 if window is not None else 0.0
    patience_s = max(limits.stalled_s, limits.stalled_factor * mean_s)
    return _stalled(ranks, now_ns, patience_s) or _unmeasured(ranks, steps, now_ns, patience_s)


def _is_alive(ranks: Ranks, state: RankState, now_ns: int) -> bool:
    """Whether a rank's probe still writes."""
    return bool(state.beats) and age_ns(ranks, state, state.beats[-1].mono_ns, now_ns) <= _FRESH_NS


def _stalled(ranks: Ranks, now_ns: int, patience_s: float) -> Verdict | None:
    """Ranks that are alive but have passed no marker for long."""
    ages: dict[int, float] = {}
    for rank, state in ranks.items():
        age = marker_age_s(ranks, state, now_ns)
        if age is not None and _is_alive(ranks, state, now_ns):
            ages[rank] = age
    if len(ages) < len(ranks) or min(ages.values()) < patience_s:
        return None
    oldest = sorted(ages, key=lambda rank: -ages[rank])[:_MOST_RANKS]
    return undecided(
        f"No rank has moved for {min(ages.values()):.0f} s",
        *(
            f"rank {rank} was last seen in {ranks[rank].doing()}, {ages[rank]:.0f} s ago"
            for rank in oldest
        ),
    )


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
        f"rank {first.rank} was last seen in {first.doing()}",
    )
