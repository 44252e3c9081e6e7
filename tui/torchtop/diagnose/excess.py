"""What makes a leading rank lead: a straggler's own work, or launch cost that the others hide.

A rank that waits lets its host run ahead, so its device executes a queue that is full already and
shows none of the host's cost of issuing it. Set beside it, the rank that everyone waits for looks
much slower, although its host may be 3 % slower only. So an excess counts as a straggler's own
where the device had work to do (extra kernels: lag is high), where the host did something that is
no launching (a stall before the optimizer, a late batch), and otherwise as far as the leader's
host itself takes longer than the base's. The rest, in forward, backward or optimizer of a device
that had caught up with its host, is launch cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .frontier import BACKWARD, DATA, FORWARD, LOCAL_PHASES, OPTIMIZER, FrontierStep, Row
from .thresholds import Thresholds

COMPUTE = (FORWARD, BACKWARD, OPTIMIZER)
"""The phases that consist of launches; what a host does between them hides, but is no launching."""

_NOTHING = (0.0,) * len(LOCAL_PHASES)
_UNKNOWN: tuple[float | None, ...] = (None,) * len(LOCAL_PHASES)


class Split(NamedTuple):
    """One step's excess over LOCAL_PHASES, by nature; microseconds."""

    own_us: tuple[float, ...]
    starved_us: tuple[float, ...]
    """Lost while the leader's device had nothing to do, which the base's host may be hiding."""
    unknown_us: tuple[float, ...]
    """Lost where lag does not tell."""
    host_us: tuple[float | None, ...]
    """How much longer the leader's host took than the base's; None where not known. The base's
    may have been held up by a full launch queue, so it is the least that is certain."""


@dataclass(frozen=True)
class Parts:
    """The excess of a window, by nature and phase; mean microseconds a step."""

    straggler_us: dict[str, float]
    launch_us: dict[str, float]
    unknown_us: dict[str, float]


def lag_low(lag_us: int, width_us: int | None) -> float:
    """The lowest lag that the evidence allows (the probe tells the middle of an interval)."""
    return max(0.0, lag_us - (width_us or 0) / 2)


class Scale(NamedTuple):
    """The limits of lag in a window, which depend on how long its steps are; microseconds."""

    zero_us: float
    """Below, a device has caught up with its host."""
    vague_us: float
    """An uncertainty above says nothing about that."""
    ahead_us: float
    """A host that loses this much of its lead has waited."""
    stall_factor: float
    """A host that takes this much longer for forward than for backward does more than launch."""

    @classmethod
    def of(cls, step_us: float, limits: Thresholds) -> Scale:
        """The limits for steps that take so long on average."""
        zero_us = max(limits.lag_zero_us, limits.lag_zero_share * step_us)
        return cls(
            zero_us,
            max(2 * zero_us, limits.lag_width_share * step_us),
            limits.lag_ahead_share * step_us,
            limits.sync_issue_factor,
        )


def starved(lag_us: int | None, width_us: int | None, scale: Scale) -> bool | None:
    """Whether the device had caught up with its host at a marker; None where not known."""
    if lag_us is None:
        return None
    width = width_us or 0
    if lag_us - width / 2 > scale.zero_us:
        return False
    return None if width > scale.vague_us else True


def split(step: FrontierStep, cuda: bool, scale: Scale) -> Split:
    """Split one step's excess.

    Args:
        step: the step.
        cuda: whether the ranks compute on GPUs; on a CPU nothing is hidden.
        scale: the limits of lag.
    """
    excess = step.excess_by_phase_us
    if not cuda or not step.excess_us:
        return Split(excess, _NOTHING, _NOTHING, _UNKNOWN)
    leader, base = step.rows[step.leader], step.rows[step.base]
    width = leader.lag_width_us
    forward = starved(leader.lag_forward_us, width, scale)
    backward = starved(leader.lag_backward_us, width, scale)
    if forward is False and backward is False:
        return Split(excess, _NOTHING, _NOTHING, _UNKNOWN)
    hosts = tuple(_host_us(leader, base, phase, scale) for phase in range(len(LOCAL_PHASES)))
    own, hungry, unknown = list(excess), list(_NOTHING), list(_NOTHING)
    for phase, host in enumerate(hosts):
        state: bool | None = False
        if phase in (FORWARD, BACKWARD):
            state = backward if phase == BACKWARD else forward
        elif phase == OPTIMIZER or (phase != DATA and host is not None):
            state = bool(forward)
        if state is not False:
            (unknown if state is None else hungry)[phase] = excess[phase]
            own[phase] = 0.0
    return Split(tuple(own), tuple(hungry), tuple(unknown), hosts)


def combine(splits: Sequence[Split], count: int) -> Parts:
    """Add up the splits of a window.

    Host times are compared as means, because their noise would not cancel step by step.

    Args:
        splits: of the steps that count, at least one.
        count: number of steps that the means are over.
    """
    straggler: dict[str, float] = {}
    launch: dict[str, float] = {}
    unknown: dict[str, float] = {}
    for phase, name in enumerate(LOCAL_PHASES):
        hungry = sum(split.starved_us[phase] for split in splits) / count
        slower = [s.host_us[phase] or 0.0 for s in splits if s.starved_us[phase]]
        own = min(hungry, max(0.0, sum(slower) / count))
        straggler[name] = sum(split.own_us[phase] for split in splits) / count + own
        launch[name] = hungry - own if phase in COMPUTE else 0.0
        unknown[name] = sum(split.unknown_us[phase] for split in splits) / count
    return Parts(straggler, launch, unknown)


def _stalled_us(row: Row, phase: int, scale: Scale) -> float:
    """How much longer a host takes for forward than launching explains, by its own backward.

    The base's host may be held back by its full queue, so that its forward takes long as well.
    """
    hosts = row.local_host_us
    if phase != FORWARD or hosts is None:
        return 0.0
    return (hosts[FORWARD] or 0) - scale.stall_factor * (hosts[BACKWARD] or 0)


def _host_us(leader: Row, base: Row, phase: int, scale: Scale) -> float | None:
    """How much longer the leader's host takes for a phase than the base's."""
    if leader.local_host_us and base.local_host_us:
        a, b = leader.local_host_us[phase], base.local_host_us[phase]
        if a is not None and b is not None:
            return max(float(a - b), _stalled_us(leader, phase, scale))
    if phase == BACKWARD:
        a, b = _host_backward_us(leader), _host_backward_us(base)
        return None if a is None or b is None else float(a - b)
    if phase == OPTIMIZER:
        return _beyond_launching(leader)
    return None


def _host_backward_us(row: Row) -> int | None:
    """Host time of the backward compute: device time less what the lag grew by."""
    if row.lag_forward_us is None or row.lag_backward_us is None:
        return None
    return row.local_us[BACKWARD] - row.lag_backward_us + row.lag_forward_us


def _beyond_launching(row: Row) -> float:
    """Optimizer time that launching does not explain.

    An optimizer's launches cost the host less than those of forward and backward together; one
    that takes longer does something else, such as waiting.
    """
    return float(row.local_us[OPTIMIZER] - row.local_us[FORWARD] - row.local_us[BACKWARD])
