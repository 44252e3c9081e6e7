"""The candidates for what holds a step back. They partition the step: no time counts twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .facts import Facts
from .hysteresis import Held
from .thresholds import Thresholds
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

    @property
    def gain_bound(self) -> float | None:
        """Upper bound of the speed-up, 1 / (1 - removable)."""
        return None if self.removable is None else 1 / (1 - min(self.removable, 0.99))


def candidates(
    window: Window, facts: Facts, held: Held | None, limits: Thresholds
) -> tuple[Candidate, ...]:
    """All candidates with a share above zero, largest first."""
    if not window.step_us:
        return ()
    straggler = _straggler(window, facts, held, limits)
    late_data = straggler.parts.get("data", 0.0)
    data = max(0.0, window.share("data") - late_data)
    found = [Candidate("DATA", data, None, "data", data)]
    if len(window.ranks) > 1:
        comm = window.share("exposed_comm")
        found += [Candidate("COMM", comm, None, "exposed_comm", comm), straggler]
    launch = _launch(window, facts, found, held, limits)
    if launch is not None:
        found.append(launch)
    return tuple(sorted((c for c in found if c.share > 0), key=lambda c: -c.share))


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
    return Candidate("STRAGGLER", share, excess.rank, phase, removable, parts)


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


def _launch(
    window: Window,
    facts: Facts,
    found: Sequence[Candidate],
    held: Held | None,
    limits: Thresholds,
) -> Candidate | None:
    """The launch-bound candidate: where the devices wait for their hosts to issue kernels."""
    if not window.cuda:
        return None
    parts = {name: us / window.step_us for name, us in window.excess.parts.launch_us.items()}
    behind = sum(parts.values())
    stands = held is not None and held.kind == "LAUNCH"
    needed = limits.starved_steps_held if stands else limits.starved_steps
    share: float = behind
    removable: float | None = behind
    if (window.starved_part or 0.0) >= needed:
        idle = _idle_share(window, facts)
        compute = window.share("forward") + window.share("backward")
        if idle is not None:
            # A spinning NCCL kernel is no idle time; a late batch or a stalled host is.
            told = sum(c.share for c in found if c.kind != "COMM")
            share = max(behind, min(idle - told, compute + window.share("optimizer")))
            removable = share
        elif compute >= limits.launch_compute and all(
            part < limits.warn for part in (behind, *(c.share for c in found))
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

    A spinning NCCL kernel counts as utilization, so this is the least that can be.
    """
    rank = window.excess.rank
    if rank is None:
        utils = [r.util_percent for r in facts.ranks if r.util_percent is not None]
        util = min(utils, default=None)
    else:
        util = facts.of(rank).util_percent
    return None if util is None else max(0.0, 1 - util / 100)
