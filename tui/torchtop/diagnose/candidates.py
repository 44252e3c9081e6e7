"""The candidates for what holds a step back. They partition the step: no time counts twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .copies import Copies, copies
from .facts import Facts
from .hysteresis import Held
from .loading import cause as loading_cause
from .pauses import NO_PAUSES, Pauses
from .thresholds import Thresholds
from .updates import slow_updates
from .window import Window


@dataclass(frozen=True)
class Candidate:
    """A possible bottleneck; shares are 0..1 of the step."""

    kind: str
    share: float
    rank: int | None = None
    phase: str | None = None
    removable: float | None = None
    """The share that would go away with the cause, at the most; None where not known."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The share by phase, where it has several."""
    cause: str | None = None
    """What is behind it, where that is known: a word of the module that finds it."""

    @property
    def gain_bound(self) -> float | None:
        """Upper bound of the speed-up, 1 / (1 - removable)."""
        return None if self.removable is None else 1 / (1 - min(self.removable, 0.99))


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
    if len(window.ranks) > 1:
        found += [_comm(window, limits), straggler]
    copied = copies(window, facts, limits) if window.cuda else None
    found += [_copies(window, copied, straggler), _optimizer(window, facts, straggler, limits)]
    if window.cuda:
        found = _with_starving(window, facts, [c for c in found if c], copied, held, limits)
    known = [candidate for candidate in found if candidate is not None and candidate.share > 0]
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


def _comm(window: Window, limits: Thresholds) -> Candidate:
    """Exposed communication. Without any, the backward that it overlaps with is faster, too."""
    share = window.share("exposed_comm")
    removable = share + limits.comm_slows * min(share, window.share("backward"))
    return Candidate("COMM", share, None, "exposed_comm", removable)


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

    A persistent leader costs its whole excess, of which goes away what is beyond the runner-up.
    Where the lead rotates, each rank in turn waits for its own loader, which is DATA; the rest
    costs what ranks wait on average, which balancing the work could gain.
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
    if excess.rank is not None and len(excess.group) < 2:
        removable = min(share, excess.gap_us / window.step_us)
    phase = sticky_phase(parts, "STRAGGLER", held, limits)
    lasting = "persistent" if excess.rank is not None else "group" if excess.group else "rotating"
    return Candidate("STRAGGLER", share, excess.rank, phase, removable, parts, lasting)


def sticky_phase(
    parts: Mapping[str, float], kind: str, held: Held | None, limits: Thresholds
) -> str:
    """The phase with the largest part; the one that stands, while it is a tie."""
    best = max(parts, key=lambda name: parts[name])
    stands = held.phase if held is not None and held.kind == kind else None
    if stands is not None and parts.get(stands, 0.0) > limits.tie * parts[best]:
        return stands
    return best


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


def _with_starving(
    window: Window,
    facts: Facts,
    found: list[Candidate],
    copied: Copies | None,
    held: Held | None,
    limits: Thresholds,
) -> list[Candidate | None]:
    """The candidates, with devices that starve: after a wait of their host, or all along."""
    # A spinning NCCL kernel is no idle time; a late batch or a stalled host is.
    told = sum(c.share for c in found if c.kind in ("DATA", "STRAGGLER", "H2D"))
    if any(c.kind == "OPTIMIZER" for c in found):
        told += window.idle_us.get("optimizer", 0.0) / window.step_us
    idle = _idle_share(window, facts)
    rest = None if idle is None else max(0.0, idle - told)
    sync = _sync(window, rest)
    launch = _launch(window, found, rest, sync.share if sync else 0.0, held, limits)
    if sync is not None and sync.phase == "forward" and _waits_for_copy(copied, window, limits):
        share = sync.share + sum(c.share for c in found if c.kind == "H2D")
        kept = [c for c in found if c.kind != "H2D"]
        return [*kept, launch, Candidate("H2D", share, None, "forward", share, cause="unpinned")]
    return [*found, launch, sync]


def _waits_for_copy(copied: Copies | None, window: Window, limits: Thresholds) -> bool:
    """Whether it is for the copy of its batch that a host waits in forward.

    Without workers, a small batch may as well be on the device already.
    """
    if copied is None or copied.pinned:
        return False
    return copied.from_workers or copied.us >= limits.note * window.step_us


def _sync(window: Window, idle: float | None) -> Candidate | None:
    """What the device loses after its host has waited for it.

    At most the time that the host waited, because without it the host is the limit; and at most
    the time that the device can have been idle in what follows, by its lag and its utilization.
    """
    waits = {phase: us / window.step_us for phase, us in window.blocked_us.items() if us}
    if not waits:
        return None
    # While a host waits in forward, its device works; only utilization tells for how long.
    unclear = waits if idle is None else {}
    most = sum(us for p, us in window.idle_us.items() if p not in unclear) / window.step_us
    share = min(sum(waits.values()), most, 1.0 if idle is None else idle)
    phase = max(waits, key=lambda name: waits[name])
    return Candidate("SYNC", share, None, phase, share, waits)


def _launch(
    window: Window,
    found: Sequence[Candidate],
    idle: float | None,
    taken: float,
    held: Held | None,
    limits: Thresholds,
) -> Candidate | None:
    """The launch-bound candidate: where the devices wait for their hosts to issue kernels.

    Args:
        window: the window.
        found: the other candidates, but for SYNC.
        idle: the share in which the critical device does nothing that they explain.
        taken: what SYNC has of it.
        held: the verdict that stands.
        limits: thresholds.
    """
    parts = {name: us / window.step_us for name, us in window.excess.parts.launch_us.items()}
    behind = sum(parts.values())
    stands = held is not None and held.kind == "LAUNCH"
    needed = limits.starved_steps_held if stands else limits.starved_steps
    share: float = behind
    removable: float | None = behind
    if (window.starved_part or 0.0) >= needed:
        compute = window.share("forward") + window.share("backward")
        if idle is not None:
            share = max(behind, min(idle, compute + window.share("optimizer")) - taken)
            removable = share
        elif compute >= limits.launch_compute and all(
            part < limits.warn for part in (behind, taken, *(c.share for c in found))
        ):
            share, removable = compute, None
    if share <= 0:
        return None
    if behind < limits.companion * share:  # the hosts of all ranks are slow, not just one
        parts = {phase: window.share(phase) for phase in ("forward", "backward", "optimizer")}
        return Candidate(
            "LAUNCH", share, None, sticky_phase(parts, "LAUNCH", held, limits), removable, parts
        )
    phase = sticky_phase(parts, "LAUNCH", held, limits)
    return Candidate("LAUNCH", share, window.excess.rank, phase, removable, parts)


def _idle_share(window: Window, facts: Facts) -> float | None:
    """Part of the time in which the critical rank's GPU executed nothing, from its utilization.

    A spinning NCCL kernel counts as utilization, so this is the least that can be. Steps that are
    left out of the window count as idle, and are taken out.
    """
    known = facts.least_busy(window.excess.rank)
    if known is None or known.util_percent is None:
        return None
    span_us = max(window.seconds * 1e6, 1.0)
    left = min(0.9, window.left_us / span_us)
    return max(0.0, (1 - known.util_percent / 100 - left) / (1 - left))
