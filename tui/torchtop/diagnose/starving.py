"""Devices that starve: after a wait of their host, or because it issues kernels too slowly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .candidate import Candidate, sticky_phase
from .copies import Copies
from .facts import Facts, RankFacts, Utilization
from .holes import FEW_LAUNCHES
from .hysteresis import Held
from .thresholds import Thresholds
from .window import Window

_COMPUTE = ("forward", "backward", "optimizer")
_ERRORS = 2.0
"""Standard errors to each side of a mean within which the truth is in 95 of 100 cases."""

_ROUNDED = 0.005
"""Utilization is told in whole percent."""


class Idle(NamedTuple):
    """Part of the time (0..1) in which a device does nothing."""

    share: float
    """What nothing else explains."""
    loose: float
    """What may go away with launch cost or waits, whatever else explains some of it."""
    error: float
    """How far off it may be: as certain as a mean over so few ticks of a sampler is."""


def with_starving(
    window: Window,
    facts: Facts,
    found: list[Candidate],
    copied: Copies | None,
    held: Held | None,
    limits: Thresholds,
) -> list[Candidate | None]:
    """The candidates, with devices that starve: after a wait of their host, or all along."""
    idle = _idle(window, facts, limits)
    rest = None if idle is None else _rest(idle, window, found)
    sync = _sync(window, rest)
    launch = _launch(window, found, rest, sync, held, limits)
    if sync is not None and sync.phase == "forward" and _waits_for_copy(copied, window, limits):
        copying = sum(c.share for c in found if c.kind == "H2D")
        kept = [c for c in found if c.kind != "H2D"]
        share, removable = sync.share + copying, (sync.removable or 0.0) + copying
        found = [*kept, Candidate("H2D", share, None, "forward", removable, cause="unpinned")]
        return [*found, launch]
    return [*found, launch, sync]


def _rest(idle: Idle, window: Window, found: Sequence[Candidate]) -> Idle:
    """What is left of idle time beside other candidates.

    A spinning NCCL kernel is no idle time; a late batch or a stalled host is. At the most, a host
    that is a straggler where it issues kernels would be none without that.
    """
    told = least = sum(c.share for c in found if c.kind in ("DATA", "H2D"))
    for slow in (c for c in found if c.kind == "STRAGGLER"):
        told += slow.share
        least += sum(part for phase, part in slow.parts.items() if phase not in _COMPUTE)
    if any(c.kind == "OPTIMIZER" for c in found):
        told += window.idle_us.get("optimizer", 0.0) / window.step_us
    return Idle(max(0.0, idle.share - told), max(0.0, idle.loose - least), idle.error)


def _waits_for_copy(copied: Copies | None, window: Window, limits: Thresholds) -> bool:
    """Whether it is for the copy of its batch that a host waits in forward.

    Without workers, a small batch may as well be on the device already, unless it was seen.
    """
    if copied is None or copied.pinned:
        return False
    return copied.on_host or copied.us >= limits.note * window.step_us


def _sync(window: Window, idle: Idle | None) -> Candidate | None:
    """What the device loses after its host has waited for it.

    At most the time that the host waited, because without it the host is the limit; and at most
    the time that the device can have been idle in what follows, by its lag and its utilization.

    Without the wait, what the device does for it goes away, too: where a host reads a result
    between two phases of kernels, all of that phase. A step without it is not shorter than the host
    takes but for its wait and that phase, nor than the device is busy but for that phase.
    """
    waits = {phase: us / window.step_us for phase, us in window.blocked_us.items() if us}
    if not waits:
        return None
    # While a host waits in forward, its device works; only utilization tells for how long.
    unclear = waits if idle is None else {}
    by_lag = sum(us for p, us in window.idle_us.items() if p not in unclear) / window.step_us
    most = window.idle_most_us / window.step_us if idle is not None else by_lag
    waited, read = sum(waits.values()), sum(window.share(p) for p in waits if p in FEW_LAUNCHES)
    share = min(waited, by_lag, 1.0 if idle is None else idle.share)
    removable = read + min(waited, most, 1.0 if idle is None else idle.loose + idle.error)
    phase = max(waits, key=lambda name: waits[name])
    return Candidate("SYNC", share, None, phase, max(share, removable), waits)


def _launch(
    window: Window,
    found: Sequence[Candidate],
    idle: Idle | None,
    sync: Candidate | None,
    held: Held | None,
    limits: Thresholds,
) -> Candidate | None:
    """The launch-bound candidate: where the devices wait for their hosts to issue kernels.

    Without launch cost a step is as long as its device is busy. That is told by utilization, and
    well enough: forward of 150 small layers, replayed as a CUDA graph, took an H200 21 % of its
    time, where utilization had been 20 %. And it is at least as long as the device has work queued
    for when its host has issued a phase (`holes`). Where utilization is not known there is no
    bound: a rank that waits shows what its device needs only as far as it does not starve itself.

    Args:
        window: the window.
        found: the other candidates, but for SYNC.
        idle: the share in which the critical device does nothing that they explain.
        sync: what a wait of the host explains of it.
        held: the verdict that stands.
        limits: thresholds.
    """
    parts = {name: us / window.step_us for name, us in window.excess.parts.launch_us.items()}
    behind, taken = sum(parts.values()), sync.share if sync is not None else 0.0
    stands = held is not None and held.kind == "LAUNCH"
    needed = limits.starved_steps_held if stands else limits.starved_steps
    share, sure = behind, True
    removable: float | None = behind
    if (window.starved_part or 0.0) >= needed:
        launched = sum(window.share(phase) for phase in _COMPUTE)
        compute = launched - window.share("optimizer")
        removable = None  # the others starve as well, and how much is not known
        if idle is not None:
            share = max(behind, min(idle.share, launched) - taken)
            most = min(launched, window.idle_most_us / window.step_us or launched)
            removable = max(share, min(idle.loose + _ROUNDED, most))
        elif compute >= limits.launch_compute and all(
            part < limits.warn for part in (behind, taken, *(c.share for c in found))
        ):
            share, sure = compute, False
    if share <= 0:
        return None
    if behind < limits.companion * share:  # the hosts of all ranks are slow, not just one
        parts = {phase: window.share(phase) for phase in _COMPUTE}
        phase = sticky_phase(parts, "LAUNCH", held, limits)
        return Candidate("LAUNCH", share, None, phase, removable, parts, sure=sure)
    phase = sticky_phase(parts, "LAUNCH", held, limits)
    return Candidate("LAUNCH", share, window.excess.rank, phase, removable, parts)


def _idle(window: Window, facts: Facts, limits: Thresholds) -> Idle | None:
    """Part of the time in which the critical rank's GPU executed nothing, from its utilization.

    A spinning NCCL kernel counts as utilization, so this is the least that can be; and a kernel
    counts from before its start until after its end, which is much for the shortest. Steps that
    are left out of the window count as idle, and are taken out.
    """
    known = facts.least_busy(window.excess.rank)
    busy = facts.idlest
    if busy is None:
        if known is None or known.util_percent is None:
            return None
        busy = Utilization(known.util_percent, 0.0)
    span_us = max(window.seconds * 1e6, 1.0)
    left = min(0.9, window.left_us / span_us)
    working = busy.mean / 100
    if known is not None and _runs_short_kernels(known, limits):
        working *= limits.short_kernel_part
    idle, loose = (
        min(1.0, max(0.0, (1 - part - left) / (1 - left))) for part in (busy.mean / 100, working)
    )
    return Idle(idle, loose, max(_ROUNDED, _ERRORS * busy.error / 100))


def _runs_short_kernels(rank: RankFacts, limits: Thresholds) -> bool:
    """Whether a GPU is busy with kernels so short that its utilization overstates them."""
    busy, active = rank.util_percent, rank.gpu.sm_active
    if not busy or active is None or busy >= limits.util_idle_percent:
        return False
    return active <= limits.short_kernel_sms * busy / 100
