"""A rank that the others wait for."""

from __future__ import annotations

from .. import loading, words
from . import data
from .case import Case, Line, busy_host, free_cores, other_rank


def headline(case: Case) -> Line:
    """One sentence."""
    rank, share = case.candidate.rank, case.share
    where = words.place(case.candidate.phase or "other")
    group = case.window.excess.group
    if len(group) > 1:
        named, counted = words.capital(words.ranks(group)), f"{len(group)} ranks"
        holds = f"hold the others up {share}"
        return Line(
            (f"{named} {holds}, {where}", f"{counted} {holds}, {where}", f"{counted} {holds}")
        )
    if rank is not None:
        return Line((f"Rank {rank} holds the others up {share}, {where}",))
    if _competes(case):
        return Line((f"Ranks compete for the host's cores: {share} of each step",))
    text = f"Another rank each step holds the others up {share}"
    return Line((f"{text}, {where}", text))


def _competes(case: Case) -> bool:
    """Whether ranks that compute on the CPU have to take turns."""
    return not case.window.cuda and busy_host(case, case.candidate.rank) is not None


def evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    window, rank = case.window, case.candidate.rank
    phase = case.candidate.phase or "backward"
    lead = window.excess.lead
    if rank is None:
        first = sorted(lead, key=lambda rank: -lead[rank])[:3]
        told = ", ".join(f"rank {rank} {words.percent(lead[rank])}" for rank in first)
        waits = [rank.wait_us for rank in window.ranks]
        return [
            busy_host(case),
            f"the slowest rank changes from step to step; of the lost time, by leader: {told}",
            f"the ranks wait {words.ms_range(waits)} for one another",
        ]
    slow, other = window.ranks[rank], other_rank(window, rank)
    return [
        f"rank {slow.rank} spends {words.ms(slow.phases_us[phase])} {words.doing(phase)}, "
        f"rank {other.rank} {words.ms(other.phases_us[phase])}",
        f"rank {other.rank} waits {words.ms(other.wait_us)} of each step for it",
        data.workers(case, rank) if phase == "data" else busy_host(case, rank),
        f"rank {slow.rank} is the slowest in {words.percent(lead[slow.rank])} of what is lost",
    ]


def advice(case: Case) -> list[str | None]:
    """What to change."""
    rank, phase = case.candidate.rank, case.candidate.phase
    cores = free_cores(case, rank)
    if rank is None and cores is not None and phase != "data":
        return [cores]
    if rank is None:
        return ["balance the work: batches of equal cost on all ranks (lengths, image sizes)"]
    if phase == "data":
        why = loading.cause(rank, case.window, case.facts, case.limits)
        found = data.of_rank(case, rank, why)
        return [f"compare the storage and CPU of rank {rank} with those of the others", *found]
    if phase in ("forward", "backward"):
        return [
            f"check whether rank {rank} computes more than the others: "
            "longer samples, extra work, another model part",
            cores,
        ]
    return [
        f"look for what rank {rank} alone does {words.doing(phase or 'other')}: "
        "logging, checkpoints, metrics, locks",
        "move it to a thread, or do it on fewer steps",
        cores,
    ]
