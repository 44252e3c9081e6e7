"""Sentences with numbers that can be checked on the screen, for each kind of verdict."""

from __future__ import annotations

from . import words
from .candidates import Candidate
from .facts import Facts
from .thresholds import Thresholds
from .window import RankMeans, Window

_MOST = 4


def sentences(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> tuple[str, ...]:
    """Two to four sentences for a candidate."""
    told = {"DATA": _data, "COMM": _comm, "STRAGGLER": _straggler, "LAUNCH": _launch}
    found = [*told[candidate.kind](candidate, window, facts, limits), pauses(window)]
    return tuple([sentence for sentence in found if sentence][:_MOST])


def pauses(window: Window) -> str | None:
    """The steps that are left out because they are rare."""
    if not window.pauses_us:
        return None
    count = len(window.pauses_us)
    steps = "one step" if count == 1 else f"{count} steps"
    return f"left out as rare: {steps} of up to {words.ms(max(window.pauses_us))}"


def _of_step(window: Window, phase: str, what: str) -> str:
    return f"{what} {words.ms(window.frontier_us[phase])} of a {words.ms(window.step_us)} step"


def _data(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    waits = [rank.phases_us["data"] for rank in window.ranks]
    worst = max(window.ranks, key=lambda rank: rank.phases_us["data"]).rank
    what = "the GPU waits for a batch" if window.cuda else "waiting for a batch takes"
    by_rank = f"; by rank {words.ms(min(waits))} to {words.ms(max(waits))}"
    return [
        _of_step(window, "data", what) + (by_rank if len(waits) > 1 else ""),
        queue(facts, worst),
        workers(facts, worst),
        _bursts(window),
    ]


def queue(facts: Facts, rank: int) -> str | None:
    """How full a rank's loader queue is."""
    known = facts.of(rank)
    if known.ready is None or not known.queue:
        return None
    return (
        f"ready batches in the loader queue of rank {rank}: "
        f"{known.ready:.1f} of {known.queue} on average"
    )


def workers(facts: Facts, rank: int) -> str | None:
    """How busy a rank's loader workers and its host are."""
    known, host = facts.of(rank), facts.host_of(rank)
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


def _bursts(window: Window) -> str | None:
    """Whether steps are bursty: most are short and a few long."""
    ordered = sorted(window.durations_us)
    middle = ordered[len(ordered) // 2]
    if ordered[-1] < 2 * middle:
        return None
    return f"bursty: the median step takes {words.ms(middle)}, the longest {words.ms(ordered[-1])}"


def _comm(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    size = facts.ddp.get("gradient_bytes")
    return [
        _of_step(
            window, "exposed_comm", "after backward every rank still waits for the gradients:"
        ),
        f"backward computes for {words.ms(window.frontier_us['backward'])}"
        ", which is all that communication can hide behind",
        f"{size / 1e6:,.0f} MB of gradients are reduced over {len(window.ranks)} ranks"
        if isinstance(size, (int, float)) and size > 0
        else None,
    ]


def other_rank(window: Window, rank: int) -> RankMeans:
    """A rank to set beside one that leads: the lower median of the others by local work."""
    others = [r for r in window.ranks if r.rank != rank]
    others.sort(key=lambda r: r.step_us - r.phases_us["exposed_comm"])
    return others[(len(others) - 1) // 2]


def _straggler(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    phase = candidate.phase or "backward"
    lead = window.excess.lead
    if candidate.rank is None:
        first = sorted(lead, key=lambda rank: -lead[rank])[:3]
        told = ", ".join(f"rank {rank} {words.percent(lead[rank])}" for rank in first)
        waits = [rank.wait_us for rank in window.ranks]
        return [
            f"the slowest rank changes from step to step; of the lost time, by leader: {told}",
            f"the ranks wait {words.ms(min(waits))} to {words.ms(max(waits))} for one another",
            busy_host(facts, None, limits),
        ]
    slow, other = window.ranks[candidate.rank], other_rank(window, candidate.rank)
    return [
        f"rank {slow.rank} spends {words.ms(slow.phases_us[phase])} {words.doing(phase)}, "
        f"rank {other.rank} {words.ms(other.phases_us[phase])}",
        f"rank {other.rank} waits {words.ms(other.wait_us)} of each step for it",
        f"rank {slow.rank} is the slowest in {words.percent(lead[slow.rank])} of what is lost",
        workers(facts, slow.rank)
        if phase == "data"
        else device(facts, slow.rank, limits) or busy_host(facts, slow.rank, limits),
    ]


def busy_host(facts: Facts, rank: int | None, limits: Thresholds) -> str | None:
    """That the processes on a rank's host have to take turns."""
    host = facts.host_of(rank)
    if not host.is_busy(limits.host_busy_percent):
        return None
    return f"the cores of the host are busy {host.cpu_percent:.0f} % of the time"


def device(facts: Facts, rank: int, limits: Thresholds) -> str | None:
    """What is wrong with a rank's GPU: throttled, or shared."""
    known = facts.of(rank)
    if known.strangers:
        return f"the GPU of rank {rank} also runs {known.strangers} other process(es)"
    peers = [r.sm_clock_mhz for r in facts.ranks if r.rank != rank and r.sm_clock_mhz]
    if known.sm_clock_mhz and peers and known.sm_clock_mhz < limits.clock_below * max(peers):
        why = f" ({', '.join(known.throttle)})" if known.throttle else ""
        return (
            f"the GPU of rank {rank} runs at {known.sm_clock_mhz:.0f} MHz, "
            f"another at {max(peers):.0f}{why}"
        )
    return None


def _launch(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> list[str | None]:
    rank = candidate.rank
    who = "the slowest rank's GPU" if rank is None and len(window.ranks) > 1 else "the GPU"
    if rank is not None:
        who = f"the GPU of rank {rank}"
    return [lag(window, who), utilization(facts, rank), _hidden(candidate, window)]


def lag(window: Window, who: str) -> str | None:
    """How far a GPU runs behind its host."""
    if window.critical_lag_us is None:
        return None
    return (
        f"{who} runs {words.ms(window.critical_lag_us)} behind its host, "
        f"in a step of {words.ms(window.step_us)}"
    )


def utilization(facts: Facts, rank: int | None) -> str | None:
    """How busy a rank's GPU is (the least busy one's for None)."""
    known = [r for r in facts.ranks if r.util_percent is not None]
    if rank is not None:
        known = [r for r in known if r.rank == rank]
    if not known:
        return None
    least = min(known, key=lambda r: r.util_percent or 0.0)
    active = "" if least.sm_active is None else f", its SMs {100 * least.sm_active:.0f} %"
    return f"the GPU of rank {least.rank} is busy {least.util_percent:.0f} % of the time{active}"


def _hidden(candidate: Candidate, window: Window) -> str | None:
    if candidate.rank is None or len(window.ranks) < 2:
        return None
    other = other_rank(window, candidate.rank)
    return (
        f"rank {other.rank} waits {words.ms(other.wait_us)} a step for it, and issues its own "
        "kernels meanwhile: that hides what its host needs"
    )
