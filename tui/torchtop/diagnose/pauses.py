"""Pauses that recur: checkpoints, evaluations, garbage collection, and long steps at intervals.

They are rare among the steps, so they are no part of a window; what they cost is their share of
the time that passes. The ranks tell of those that the probe knows (``pause`` records). Others show
as steps that are far too long, outside of waiting for data, at regular intervals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from .frontier import FRONTIER_PHASES, FrontierStep
from .ranks import Pause
from .select import is_startup, usual_work_us, work_us
from .thresholds import Thresholds

Told = Mapping[int, Sequence[Pause]]


@dataclass(frozen=True)
class Recurring:
    """One kind of pause."""

    what: str
    """gc, save or eval; empty for long steps of which nobody says why."""
    share: float
    """Of the time that passes (0..1)."""
    each_us: float
    every_steps: int | None
    count: int
    rank: int | None
    """The rank that alone has it."""
    phase: str | None = None
    """Where a nameless one passes."""


@dataclass(frozen=True)
class Pauses:
    """All that recur, the most expensive first, and the steps that have them."""

    recurring: tuple[Recurring, ...] = ()
    steps: frozenset[int] = frozenset()

    @property
    def share(self) -> float:
        """Of the time that passes (0..1)."""
        return min(1.0, sum(pause.share for pause in self.recurring))


NO_PAUSES = Pauses()


def find(steps: Sequence[FrontierStep], told: Told, limits: Thresholds) -> Pauses:
    """Look for pauses that recur.

    Args:
        steps: what has been recorded lately, oldest first.
        told: each rank's ``pause`` records, oldest first.
        limits: thresholds.
    """
    usual = usual_work_us(steps, limits)
    recent = [s for s in steps[-limits.pause_steps :] if not is_startup(s, usual, limits)]
    if not recent:
        return NO_PAUSES
    found: list[Recurring] = []
    taken: set[int] = set()
    for what in ("eval", "save"):
        long = _long(what, told, recent[-1].step, limits)
        if long is not None:
            found.append(long)
            taken |= _during(recent, told, what)
    collected = _collecting(recent, told, taken, limits)
    if collected is not None:
        found.append(collected)
        taken |= {s.step for s in _outliers(recent, limits)} & _during(recent, told, "gc")
    nameless = _nameless([s for s in recent if s.step not in taken], limits)
    if nameless is not None:
        found.append(nameless[0])
        taken |= nameless[1]
    found.sort(key=lambda pause: -pause.share)
    return Pauses(tuple(found), frozenset(taken))


def _long(what: str, told: Told, last_step: int, limits: Thresholds) -> Recurring | None:
    """Evaluations or checkpoints, by the records of the rank that has the most of them.

    From one to the next there is one and the time until the next. The last one's is still under
    way and does not count.
    """
    by_rank = {rank: _merged(what, pauses, limits) for rank, pauses in told.items()}
    by_rank = {rank: merged for rank, merged in by_rank.items() if merged}
    if not by_rank:
        return None
    worst = max(by_rank, key=lambda rank: sum(p.duration_us for p in by_rank[rank]))
    merged = by_rank[worst]
    if len(merged) < 2:
        return None
    span_us = (merged[-1].start_ns - merged[0].start_ns) / 1000
    gaps = [(b.step or 0) - (a.step or 0) for a, b in pairwise(merged)]
    every = round(median(gaps))
    if span_us <= 0 or last_step - (merged[-1].step or 0) > limits.periodic_over * max(1, every):
        return None
    share = sum(pause.duration_us for pause in merged[:-1]) / span_us
    each = fmean(pause.duration_us for pause in merged)
    alone = worst if len(by_rank) == 1 and len(told) > 1 else None
    return Recurring(what, min(1.0, share), each, every, len(merged), alone)


def _merged(what: str, pauses: Sequence[Pause], limits: Thresholds) -> list[Pause]:
    """Pauses of one kind after the warm-up; several in a step are one (model and optimizer)."""
    merged: list[Pause] = []
    for pause in pauses:
        if pause.what != what or pause.step is None or pause.step < limits.warmup_steps:
            continue
        if merged and merged[-1].step == pause.step:
            both = merged[-1].duration_us + pause.duration_us
            merged[-1] = merged[-1]._replace(duration_us=both)
        else:
            merged.append(pause)
    since = merged[-1].start_ns - limits.periodic_memory_s * 1e9 if merged else 0
    return [pause for pause in merged if pause.start_ns >= since]


def _during(steps: Sequence[FrontierStep], told: Told, what: str) -> set[int]:
    """The recorded steps in which a rank pauses, by that rank's host clock."""
    found: set[int] = set()
    for rank, pauses in told.items():
        starts = [pause.start_ns for pause in pauses if pause.what == what]
        if not starts or rank >= len(steps[0].rows):
            continue
        ends = [step.rows[rank].end_ns for step in steps]
        for start in starts:
            place = bisect_right(ends, start)
            if place < len(steps):
                row = steps[place].rows[rank]
                if row.host_us is None or start >= row.end_ns - 1000 * row.host_us:
                    found.add(row.step)
    return found


def _collecting(
    steps: Sequence[FrontierStep], told: Told, taken: set[int], limits: Thresholds
) -> Recurring | None:
    """Garbage collection: by how much steps with it are longer than those without.

    A collection that the device sits out on its queue costs nothing, so its own time does not
    count. Recorded steps are a fair sample of all.
    """
    lengths = {r: sum(p.duration_us for p in ps if p.what == "gc") for r, ps in told.items()}
    total_us = sum(step.step_us for step in steps)
    if not total_us or max(lengths.values(), default=0) < limits.note / 2 * total_us:
        return None
    with_it = _during(steps, told, "gc") - taken
    hit = [step for step in steps if step.step in with_it]
    free = [step.step_us for step in steps if step.step not in with_it and step.step not in taken]
    if len(hit) < 2 or not free:
        return None
    usual = fmean(free)
    lost = max(0.0, sum(step.step_us for step in hit) - len(hit) * usual)
    ranks = [rank for rank, length in lengths.items() if length]
    worst = max(lengths, key=lambda rank: lengths[rank])
    each = fmean(p.duration_us for p in told[worst] if p.what == "gc")
    if hit[-1].step < steps[-1].step - limits.periodic_over * _gap(hit):
        return None
    return Recurring(
        what="gc",
        share=lost / total_us,
        each_us=each,
        every_steps=max(1, round(_gap(hit))),
        count=len(hit),
        rank=worst if len(ranks) == 1 and len(told) > 1 else None,
    )


def _gap(steps: Sequence[FrontierStep]) -> float:
    return median(b.step - a.step for a, b in pairwise(steps))


def _outliers(steps: Sequence[FrontierStep], limits: Thresholds) -> list[FrontierStep]:
    """Steps that are far too long, without their wait for data."""
    if not steps:
        return []
    limit = limits.pause_factor * median(work_us(step) for step in steps)
    return [step for step in steps if work_us(step) > limit]


def _nameless(
    steps: Sequence[FrontierStep], limits: Thresholds
) -> tuple[Recurring, set[int]] | None:
    """Long steps at regular intervals; only where all steps are recorded can that be seen."""
    long = _outliers(steps, limits)
    if len(long) < 3 or 2 * len(steps) < steps[-1].step - steps[0].step:
        return None
    gaps = [b.step - a.step for a, b in pairwise(long)]
    every = median(gaps)
    if max(gaps) - min(gaps) > max(1.0, limits.periodic_spread * every) or every < 2:
        return None
    if steps[-1].step - long[-1].step > limits.periodic_over * every:
        return None
    numbers = {step.step for step in long}
    usual = [step for step in steps if step.step not in numbers]
    base = fmean(step.step_us for step in usual)
    span = [step for step in steps if long[0].step <= step.step < long[-1].step]
    each = fmean(step.step_us - base for step in long)
    share = each * (len(long) - 1) / max(1, sum(step.step_us for step in span))
    if share < limits.note:
        return None
    longer = [
        fmean(s.frontier_us[index] for s in long) - fmean(s.frontier_us[index] for s in usual)
        for index in range(len(FRONTIER_PHASES))
    ]
    phase = FRONTIER_PHASES[longer.index(max(longer))]
    told = Recurring("", min(1.0, share), each, round(every), len(long), None, phase)
    return told, numbers
