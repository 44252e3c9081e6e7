"""The candidates for what holds a step back. They partition the step: no time counts twice."""

from __future__ import annotations

from dataclasses import replace

from .candidate import Candidate, sticky_phase
from .copies import Copies, copies
from .facts import Facts
from .hysteresis import Held
from .loading import cause as loading_cause
from .pauses import NO_PAUSES, Pauses
from .starving import with_starving
from .thresholds import Thresholds
from .updates import slow_updates
from .window import Window


def candidates(
    window: Window,
    facts: Facts,
    held: Held | None,
    limits: Thresholds,
    pauses: Pauses = NO_PAUSES,
) -> tuple[Candidate, ...]:
    """All candidates with a share above zero, largest first."""
    if not window.step_us:
        return ()
    straggler = _straggler(window, facts, held, limits)
    found = [_data(window, facts, straggler, limits), _periodic(pauses)]
    if len(window.ranks) > 1 and not facts.alone:
        found += [_comm(window, facts, limits), straggler]
    copied = copies(window, facts, limits) if window.cuda else None
    found += [_copies(window, copied, straggler), _optimizer(window, facts, straggler, limits)]
    if window.cuda:
        found = with_starving(window, facts, [c for c in found if c], copied, held, limits)
    known = [candidate for candidate in found if candidate is not None and candidate.share > 0]
    known = [replace(c, share=1.0) if c.share > 1 else c for c in known]  # of what cannot be
    return tuple(sorted(known, key=lambda candidate: -candidate.share))


def _data(
    window: Window, facts: Facts, straggler: Candidate, limits: Thresholds
) -> Candidate | None:
    share = window.share("data") - straggler.parts.get("data", 0.0)
    if share <= 0:
        return None
    worst = max(window.ranks, key=lambda rank: rank.phases_us["data"]).rank
    why = loading_cause(worst, window, facts, limits)
    return Candidate("DATA", share, None, "data", share, cause=why)


def _periodic(pauses: Pauses) -> Candidate | None:
    if not pauses.recurring:
        return None
    first, share = pauses.recurring[0], pauses.share
    return Candidate("PERIODIC", share, first.rank, first.phase, share, cause=first.what or None)


def _comm(window: Window, facts: Facts, limits: Thresholds) -> Candidate:
    """Exposed communication.

    Without any, the backward that it overlaps with is faster, too. But what it takes a host to
    issue a step, which the wait has hidden, remains.
    """
    share = window.share("exposed_comm")
    removable = share + limits.comm_slows * min(share, window.share("backward"))
    removable = min(removable, _hosts_leave(window, facts))
    return Candidate("COMM", share, None, "exposed_comm", removable)


def _hosts_leave(window: Window, facts: Facts, but: int | None = None) -> float:
    """The share that can go away before a host is the limit, as far as that is known.

    Args:
        window: the window.
        facts: what is known of the hosts.
        but: a rank that does not count.
    """
    paces = [facts.host_pace_us.get(r.rank, 0.0) for r in window.ranks if r.rank != but]
    return max(0.0, 1 - max(paces, default=0.0) / window.step_us)


def _copies(window: Window, copied: Copies | None, straggler: Candidate) -> Candidate | None:
    """Copies to the device, as far as they are part of everybody's forward."""
    if copied is None:
        return None
    room = window.share("forward") - straggler.parts.get("forward", 0.0)
    share = min(copied.us / window.step_us, max(0.0, room))
    why = "large" if copied.pinned else "unpinned"
    return Candidate("H2D", share, None, "forward", share, cause=why)


def _optimizer(
    window: Window, facts: Facts, straggler: Candidate, limits: Thresholds
) -> Candidate | None:
    """An optimizer that takes longer than it has to."""
    share = window.share("optimizer") - straggler.parts.get("optimizer", 0.0)
    if share < limits.optimizer_share:
        return None
    updates = slow_updates(window, facts, limits)
    if updates is None:
        return None
    removable = share - updates.least_us / window.step_us
    if removable < limits.optimizer_share:
        return None
    return Candidate("OPTIMIZER", share, None, "optimizer", removable, cause=updates.cause)


def _straggler(window: Window, facts: Facts, held: Held | None, limits: Thresholds) -> Candidate:
    """What the slowest ranks cost the others.

    A persistent leader costs its whole excess, of which goes away what is beyond the runner-up, and
    beyond what the others' hosts need to issue a step, which waiting has hidden. Where the lead
    rotates, each rank in turn waits for its own loader, which is DATA; the rest costs what ranks
    wait on average, which balancing the work could gain.
    """
    excess = window.excess
    parts = {name: us / window.step_us for name, us in excess.parts.straggler_us.items()}
    late = _late_data_us(window, facts, limits) if excess.rank is not None else 0.0
    parts["data"] = min(parts["data"], late / window.step_us, window.share("data"))
    if excess.rank is None and not excess.group and excess.total_us:
        balanced = min(1.0, excess.mean_wait_us / excess.total_us)
        parts = {name: balanced * part for name, part in parts.items()}
    share = sum(parts.values())
    removable = share
    phase = sticky_phase(parts, "STRAGGLER", held, limits)
    alone = excess.rank is not None and len(excess.group) < 2
    beyond = excess.gap_us / window.step_us
    if phase == "data":
        removable = min(share, beyond) if alone else share
    else:  # a host waits for its loader as well, until all batches are early
        # What launching costs the rank beside that is hidden once it is no later than the others.
        removable = min(beyond if alone else share, _hosts_leave(window, facts, excess.rank))
    lasting = "persistent" if excess.rank is not None else "group" if excess.group else "rotating"
    return Candidate("STRAGGLER", share, excess.rank, phase, removable, parts, lasting)


def _late_data_us(window: Window, facts: Facts, limits: Thresholds) -> float:
    """How much of a leading rank's data stall would go away with that rank's delay alone.

    While everybody waits for one late loader the others' queues fill up and hide that their
    loaders are hardly faster. So the others' own pace bounds what fixing one rank can gain: the
    step time at which they once stalled themselves, or, where workers are busy, the part of the
    step that they compute. And a rank whose host waits in next() as well has no spare batches.
    """
    rank = window.excess.rank
    others = [means for means in window.ranks if means.rank != rank]
    leader = next(means for means in window.ranks if means.rank == rank)
    pace = host = 0.0
    for other in others:
        seen = facts.loader_period_us.get(other.rank, 0.0)
        percent = facts.of(other.rank).worker_percent
        busy = 0.0 if percent is None else min(1.0, percent / 100) * window.step_us
        pace = max(pace, seen, busy)
        host = max(host, other.data_host_us or 0.0)
    late = max(0.0, window.step_us - pace)
    return late if leader.data_host_us is None else min(late, max(0.0, leader.data_host_us - host))
