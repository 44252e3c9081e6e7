"""What makes a leading rank lead: a straggler's own work, or launch cost that the others hide.

A rank that waits lets its host run ahead, so its device executes a queue that is full already and
shows none of the host's cost of issuing it. Set beside it, the rank that everyone waits for looks
much slower, although its host may be 3 % slower only. So an excess counts as a straggler's where
the device had work to do (extra kernels: lag is high) or where the host did something that is no
launching (a stall before the optimizer, a late batch); an excess in forward, backward or optimizer
of a device that had caught up with its host is launch cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .frontier import BACKWARD, DATA, FORWARD, LOCAL_PHASES, OPTIMIZER, FrontierStep, Row
from .thresholds import Thresholds

_RATIO_SLACK = 2.0
"""Optimizers differ from models in launch cost against kernel time by about this much."""


class Split(NamedTuple):
    """An excess over LOCAL_PHASES, by nature; microseconds."""

    straggler_us: tuple[float, ...]
    launch_us: tuple[float, ...]
    unknown_us: tuple[float, ...]


def lag_low(lag_us: int, width_us: int | None) -> float:
    """The lowest lag that the evidence allows (the probe tells the middle of an interval)."""
    return max(0.0, lag_us - (width_us or 0) / 2)


def starved(
    lag_us: int | None, width_us: int | None, step_us: float, limits: Thresholds
) -> bool | None:
    """Whether the device had caught up with its host at a marker; None where not known."""
    if lag_us is None:
        return None
    limit = max(limits.lag_zero_us, limits.lag_zero_share * step_us)
    if lag_low(lag_us, width_us) > limit:
        return False
    if (width_us or 0) > max(2 * limit, limits.lag_width_share * step_us):
        return None
    return True


def split(step: FrontierStep, cuda: bool, step_us: float, limits: Thresholds) -> Split:
    """Split one step's excess.

    Args:
        step: the step.
        cuda: whether the ranks compute on GPUs; on a CPU nothing is hidden.
        step_us: mean step time, the scale of the limits.
        limits: thresholds.
    """
    excess = step.excess_by_phase_us
    nothing = (0.0,) * len(LOCAL_PHASES)
    if not cuda or not step.excess_us:
        return Split(excess, nothing, nothing)
    leader, base = step.rows[step.leader], step.rows[step.base]
    width = leader.lag_width_us
    forward = starved(leader.lag_forward_us, width, step_us, limits)
    backward = starved(leader.lag_backward_us, width, step_us, limits)
    own = list(excess)
    for phase, hungry in ((OPTIMIZER, forward), (FORWARD, forward), (BACKWARD, backward)):
        if hungry:
            own[phase] = min(excess[phase], _own_host_us(leader, base, phase))
    if forward and leader.local_host_us and base.local_host_us:
        for phase in range(len(LOCAL_PHASES)):
            if phase not in (DATA, BACKWARD):
                own[phase] = min(excess[phase], _own_host_us(leader, base, phase))
    unknown = list(nothing)
    for phase, hungry in ((FORWARD, forward), (BACKWARD, backward)):
        if hungry is None:
            unknown[phase], own[phase] = excess[phase], 0.0
    launch = [e - o - u for e, o, u in zip(excess, own, unknown, strict=True)]
    return Split(tuple(own), tuple(launch), tuple(unknown))


def _own_host_us(leader: Row, base: Row, phase: int) -> float:
    """How much longer the leader's host itself takes for a phase: never more than is certain.

    The base's host may have been held up by a full launch queue, which makes this a lower bound.
    """
    if leader.local_host_us and base.local_host_us:
        a, b = leader.local_host_us[phase], base.local_host_us[phase]
        if a is not None and b is not None:
            return float(max(0, a - b))
    if phase == BACKWARD:
        a, b = _host_backward_us(leader), _host_backward_us(base)
        return 0.0 if a is None or b is None else float(max(0, a - b))
    if phase == OPTIMIZER:
        return _beyond_launching(leader.local_us, base.local_us)
    return 0.0


def _host_backward_us(row: Row) -> int | None:
    """Host time of the backward compute: device time less what the lag grew by."""
    if row.lag_forward_us is None or row.lag_backward_us is None:
        return None
    return row.local_us[BACKWARD] - row.lag_backward_us + row.lag_forward_us


def _beyond_launching(leader: Sequence[int], base: Sequence[int]) -> float:
    """Optimizer time beyond what launching costs, judged by forward and backward.

    There, launching takes the leader some multiple of the base's kernel time. An optimizer that
    takes far more than that multiple does something else, such as waiting.
    """
    kernels = base[FORWARD] + base[BACKWARD]
    ratio = (leader[FORWARD] + leader[BACKWARD]) / kernels if kernels else 1.0
    return max(0.0, leader[OPTIMIZER] - _RATIO_SLACK * max(1.0, ratio) * base[OPTIMIZER])
