"""The candidates for what holds a step back. They partition the step: no time counts twice."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import Facts
from .thresholds import Thresholds
from .window import Window


@dataclass(frozen=True)
class Candidate:
    """A possible bottleneck.

    `share` is 0..1 of the step. `removable` says whether the share is measured, so that a bound of
    the gain follows from it; a launch-bound share of unknown size has none.
    """

    kind: str
    share: float
    rank: int | None = None
    phase: str | None = None
    removable: bool = True

    @property
    def gain_bound(self) -> float | None:
        """Upper bound of the speed-up, 1 / (1 - share)."""
        return 1 / (1 - min(self.share, 0.99)) if self.removable else None


def candidates(window: Window, facts: Facts, limits: Thresholds) -> tuple[Candidate, ...]:
    """All candidates with a share above zero, largest first."""
    world = len(window.ranks)
    straggler, late_data_us = _straggler(window, facts, limits)
    data_us = window.frontier_us["data"] - late_data_us
    found = [Candidate("DATA", data_us / window.step_us, None, "data")]
    if world > 1:
        comm = window.share("exposed_comm")
        found += [Candidate("COMM", comm, None, "exposed_comm"), straggler]
    launch = _launch(window, facts, found, limits)
    if launch is not None:
        found.append(launch)
    return tuple(sorted((c for c in found if c.share > 0), key=lambda c: -c.share))


def _straggler(window: Window, facts: Facts, limits: Thresholds) -> tuple[Candidate, float]:
    """The straggler candidate, and the time it takes out of the frontier's data phase."""
    excess = window.excess
    parts = dict(excess.straggler_us)
    if excess.rank is None:
        parts["data"] = 0.0  # each rank in turn waits for its own loader: that is DATA
    else:
        parts["data"] = min(parts["data"], _late_data_us(window, facts, excess.rank, limits))
    late_data = min(parts["data"], window.frontier_us["data"])
    total = sum(parts.values())
    phase = max(parts, key=lambda name: parts[name])
    share = total / window.step_us if window.step_us else 0.0
    return Candidate("STRAGGLER", share, excess.rank, phase), late_data


def _late_data_us(window: Window, facts: Facts, rank: int, limits: Thresholds) -> float:
    """How much of a leading rank's data stall would go away with that rank's delay alone.

    While everybody waits for one late loader the others' queues fill up and hide that their
    loaders are hardly faster. So the others' own pace bounds what fixing one rank can gain: the
    step time at which they once stalled themselves, or, where workers are busy, the part of the
    step that they compute. A rank whose host waits in next() as well has no spare batches.
    """
    pace = 0.0
    for other in window.ranks:
        if other.rank == rank:
            continue
        seen = facts.loader_period_us.get(other.rank, 0.0)
        percent = facts.of(other.rank).worker_percent
        busy = 0.0 if percent is None else min(1.0, percent / 100) * window.step_us
        pace = max(pace, seen, busy)
    return max(0.0, window.step_us - pace)


def _launch(
    window: Window, facts: Facts, found: list[Candidate], limits: Thresholds
) -> Candidate | None:
    """The launch-bound candidate: where the devices wait for their hosts to issue kernels."""
    if not window.cuda or not window.step_us:
        return None
    excess = window.excess
    behind = sum(excess.launch_us.values()) / window.step_us
    rank = excess.rank if behind > 0 else None
    phase = max(excess.launch_us, key=lambda name: excess.launch_us[name])
    if (window.starved_part or 0.0) < limits.starved_steps:
        return Candidate("LAUNCH", behind, rank, phase) if behind > 0 else None
    idle = _idle_share(window, facts)
    compute = window.share("forward") + window.share("backward")
    busiest = "forward" if window.share("forward") > window.share("backward") else "backward"
    phase = phase if behind > 0 else busiest
    if idle is not None:
        told = sum(c.share for c in found if c.kind != "COMM")  # NCCL's spinning is no idle time
        share = max(behind, min(idle - told, compute + window.share("optimizer")))
        return Candidate("LAUNCH", share, rank, phase)
    if behind >= limits.warn:
        return Candidate("LAUNCH", behind, rank, phase)
    if any(c.share >= limits.warn for c in found) or compute < 0.5:
        return Candidate("LAUNCH", behind, rank, phase) if behind > 0 else None
    return Candidate("LAUNCH", compute, rank, phase, removable=False)


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
