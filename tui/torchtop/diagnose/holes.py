"""Where a host waits for its own device, and where the device then waits for the host.

A host that reads a result (``.item()``, ``.cpu()``, a tensor in an ``if``) waits until its device
has caught up. That alone costs nothing: the device works meanwhile. The loss comes after, while
the device has an empty queue and the host is slower at filling it than the device at emptying it.
So what can be won back is at most the time that the host waited, and at most the time that the
device starved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .excess import COMPUTE, Scale, lag_low, starved
from .frontier import BACKWARD, FORWARD, LOCAL_PHASES, OTHER, PRE_OPTIMIZER, Row
from .thresholds import Thresholds

FEW_LAUNCHES = ("pre_optimizer", "other")
"""Phases in which a host has little to issue, so that time spent there is spent otherwise."""
_LOOKED_AT = (PRE_OPTIMIZER, OTHER, *COMPUTE)


class Holes(NamedTuple):
    """One step of one rank, over LOCAL_PHASES; microseconds."""

    blocked_us: tuple[float, ...]
    """How long the host waited for its device."""
    idle_us: tuple[float, ...]
    """How long the device can have been idle in forward, backward and optimizer, where the host
    takes about as long to issue one of them as another."""
    most_us: tuple[float, ...]
    """The same, however long the host takes."""


def holes(row: Row, scale: Scale, limits: Thresholds) -> Holes | None:
    """Look for holes in one step; None where the probe did not tell enough.

    The lag falls in a phase by what its host spends there beyond its device. Where it falls to
    nothing, and the host has nothing to do that would take so long, the host waited. A device that
    is behind at the end of a phase has been busy for as long as it is behind; before that it may
    have been idle, but not for longer than the host was in the phase.

    Args:
        row: the step, on a GPU.
        scale: the limits of lag.
        limits: thresholds.
    """
    hosts, lags, width = row.local_host_us, row.local_lag_us, row.lag_width_us
    if hosts is None or lags is None:
        return None
    blocked, idle, most = ([0.0] * len(LOCAL_PHASES) for _ in range(3))
    for phase in _LOOKED_AT:
        host, device, lag = hosts[phase], row.local_us[phase], lags[phase]
        if host is None or lag is None:
            continue
        issuing = float(host)
        if host - device >= scale.ahead_us and starved(lag, width, scale):
            drained = _drained_us(phase, hosts, device, limits)
            if drained >= scale.ahead_us:
                blocked[phase] = drained
                issuing = min(issuing, _issuing_us(phase, hosts, limits))
        if phase in COMPUTE:
            most[phase] = min(float(host), max(0.0, device - lag_low(lag, width)))
            idle[phase] = min(issuing, most[phase])
    return Holes(tuple(blocked), tuple(idle), tuple(most))


def _drained_us(
    phase: int, hosts: Sequence[int | None], device_us: int, limits: Thresholds
) -> float:
    """How much of its lead a host lost in a phase by waiting, as far as that is certain."""
    host = hosts[phase] or 0
    if phase in COMPUTE:
        return min(host - device_us, host - _issuing_us(phase, hosts, limits))
    if device_us > limits.sync_device_part * host:
        return 0.0  # its device ran dry meanwhile: the host did something else
    return float(host - device_us)


def _issuing_us(phase: int, hosts: Sequence[int | None], limits: Thresholds) -> float:
    """How long a host may take to issue a phase, judged by its others."""
    others = [hosts[other] or 0 for other in (FORWARD, BACKWARD) if other != phase]
    return limits.sync_issue_factor * max(others)
