"""Ranks on CPUs that do nothing for most of a step, for no reason that a phase shows.

A script that sleeps in its forward pass, or waits there for a file or a network, looks to the clock
of a host like one that computes. What tells is how much of a core its process used.
"""

from __future__ import annotations

from . import words
from .candidate import Candidate
from .facts import Facts
from .thresholds import Thresholds
from .verdict import Verdict, undecided
from .window import RankMeans, Window

_WAITS = ("data", "exposed_comm")
"""Phases in which a rank is idle for a reason that is told."""

_ADVICE = ("torchtop stacks, or t in the viewer, shows where it stands; ask some times",)


def instead_of_healthy(facts: Facts, limits: Thresholds) -> Verdict | None:
    """Why a run on CPUs cannot be called compute-bound; None when it can.

    Where all cores are busy, a rank that does not get its turn computes as little.
    """
    known = [rank for rank in facts.ranks if rank.cpu_percent is not None]
    least = min(known, key=lambda rank: rank.cpu_percent or 0.0, default=None)
    if least is None or (least.cpu_percent or 0.0) >= limits.util_idle_percent:
        return None
    if not _has_cores(facts, least.rank, limits):
        return None
    return undecided(
        f"The steps look compute-bound, but rank {least.rank} is idle most of the time",
        _use(facts, least.rank),
        _own(facts),
        advice=_ADVICE,
    )


def beside(window: Window, facts: Facts, chosen: Candidate, limits: Thresholds) -> Verdict | None:
    """Why the largest known cause is not what a run on CPUs loses its time to.

    Args:
        window: the window.
        facts: what is known beside the steps.
        chosen: the largest cause.
        limits: thresholds.

    Returns:
        What to say instead of it, where a rank is idle for half of the time, and twice as long as
        the cause takes, beside its waits for data and for other ranks.
    """
    if window.cuda:
        return None
    idle = {means.rank: _idle(means, window, facts) for means in window.ranks}
    rank = max(idle, key=idle.__getitem__)
    share = idle[rank]
    if share < max(limits.util_idle_percent / 100, 2 * chosen.share):
        return None
    if not _has_cores(facts, rank, limits):
        return None
    idles, told = words.percent(share), words.percent(chosen.share)
    return undecided(
        f"Rank {rank} is idle {idles} of the time, for no reason that the phases show",
        _use(facts, rank),
        _own(facts),
        f"the largest known cause, {words.candidate_name(chosen.kind)}, takes {told} of each step",
        advice=_ADVICE,
    )


def _idle(means: RankMeans, window: Window, facts: Facts) -> float:
    """Part of the time (0..1) in which a rank neither computes nor is known to wait."""
    percent = facts.of(means.rank).cpu_percent
    if percent is None or window.step_us <= 0:
        return 0.0
    waits = sum(means.phases_us[phase] for phase in _WAITS) / window.step_us
    return max(0.0, 1 - percent / 100 - waits)


def _has_cores(facts: Facts, rank: int, limits: Thresholds) -> bool:
    host = facts.host_of(rank)
    return host.cpu_percent is not None and not host.is_busy(limits.host_busy_percent)


def _use(facts: Facts, rank: int) -> str:
    percent = round(facts.of(rank).cpu_percent or 0.0)
    return (
        f"it uses {percent} % of one core: it sleeps, or waits for files, a network or another "
        "process"
    )


def _own(facts: Facts) -> str:
    """What the script itself says of where the time goes; empty where it says nothing."""
    name = max(facts.own_phases, key=facts.own_phases.__getitem__, default=None)
    if name is None:
        return ""
    share = words.percent(facts.own_phases[name])
    return f'the script\'s own phase "{words.shortened(name, 40)}" takes {share} of each step'
