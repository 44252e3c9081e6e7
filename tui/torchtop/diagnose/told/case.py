"""What is told about, and sentences that several kinds of bottleneck share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .. import words
from ..candidate import Candidate
from ..facts import Facts
from ..pauses import NO_PAUSES, Pauses
from ..thresholds import Thresholds
from ..window import RankMeans, Window


@dataclass(frozen=True)
class Case:
    """A bottleneck and all that is known of the run."""

    candidate: Candidate
    window: Window
    facts: Facts
    limits: Thresholds
    pauses: Pauses = NO_PAUSES

    @property
    def share(self) -> str:
        """The candidate's share of the step."""
        return words.percent(self.candidate.share)

    @property
    def gain(self) -> str:
        """What could be won, as a headline ends; empty where that is not known."""
        bound = self.candidate.gain_bound
        return "" if bound is None else f": up to {words.times(bound)} faster"


class Line(NamedTuple):
    """What a headline says of a bottleneck, but for what could be won."""

    texts: tuple[str, ...]
    """The same with ever fewer words."""
    why: str = ""
    """What is behind it, where there is room for that."""


def of_step(window: Window, phase: str, what: str) -> str:
    """How long a phase takes."""
    return f"{what} {words.ms(window.frontier_us[phase])} of a {words.ms(window.step_us)} step"


def other_rank(window: Window, rank: int) -> RankMeans:
    """A rank to set beside one that leads: the lower median of the others by local work."""
    others = [r for r in window.ranks if r.rank != rank]
    others.sort(key=lambda r: r.step_us - r.phases_us["exposed_comm"])
    return others[(len(others) - 1) // 2]


def slowest_gpu(window: Window, rank: int | None = None) -> str:
    """The GPU that sets the pace, by name."""
    if rank is not None:
        return f"the GPU of rank {rank}"
    return "the slowest rank's GPU" if len(window.ranks) > 1 else "the GPU"


def lag(window: Window, who: str) -> str | None:
    """How far a GPU runs behind its host."""
    if window.critical_lag_us is None:
        return None
    return (
        f"{who} runs {words.ms(window.critical_lag_us)} behind its host, "
        f"in a step of {words.ms(window.step_us)}"
    )


def utilization(facts: Facts, rank: int | None = None) -> str | None:
    """How busy a rank's GPU is (the least busy one's for None)."""
    least = facts.least_busy(rank)
    if least is None:
        return None
    active = least.gpu.sm_active
    told = "" if active is None else f", its SMs {words.percent(active)}"
    return f"the GPU of rank {least.rank} is busy {least.util_percent:.0f} % of the time{told}"


def idlest(case: Case, rank: int | None = None) -> str | None:
    """How busy a GPU is that waits for no other: that of a rank, where there is but one."""
    busy = case.facts.idlest
    if busy is None or len(case.window.ranks) < 2:
        return utilization(case.facts, rank)
    return (
        f"in each second the least busy GPU is busy {busy.mean:.0f} % of it; one that waits for "
        "another counts as busy"
    )


def busy_host(case: Case, rank: int | None = None) -> str | None:
    """That the processes on a rank's host have to take turns."""
    host = case.facts.host_of(rank)
    if not host.is_busy(case.limits.host_busy_percent):
        return None
    cores = f"{host.cores} cores" if host.cores else "cores"
    return f"the {cores} of the host are busy {host.cpu_percent:.0f} % of the time"


def free_cores(case: Case, rank: int | None = None) -> str | None:
    """What to do where they are."""
    host = case.facts.host_of(rank)
    if not host.is_busy(case.limits.host_busy_percent):
        return None
    ranks = f"{host.ranks} ranks" if host.ranks > 1 else "the rank"
    on = f"{ranks} and {host.workers} loader workers share" if host.workers else f"{ranks} share"
    if host.ranks == 1 and not host.workers:
        on += "s"
    cores = f"{host.cores} cores" if host.cores else "the cores"
    return (
        f"leave cores free: {on} {cores}; fewer ranks, workers or threads (OMP_NUM_THREADS), "
        "no other programs"
    )
