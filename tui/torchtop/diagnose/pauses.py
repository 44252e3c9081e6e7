"""Pauses that recur: checkpoints, evaluations, garbage collection, and long steps at intervals.

They are rare among the steps, so they are no part of a window; what they cost is their share of
the time that passes. The ranks tell of those that the probe knows (``pause`` records). Others show
as steps that are far too long, outside of waiting for data, at regular intervals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from .frontier import FRONTIER_PHASES, FrontierStep, account
from .ranks import Pause
from .select import settled, work_us
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
    """How long one holds the host up."""
    cost_us: float
    """What one costs: the device has a queue to work off meanwhile."""
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

_KINDS = (("eval", 2), ("save", 2), ("gc", 3))
"""Those that the probe knows, and how many of each there must be before they recur."""


class _Event(NamedTuple):
    """A pause of some ranks at the same time."""

    start_ns: int
    end_ns: int
    ranks: frozenset[int]
    step: int | None
    us: int
    """How long it holds the slowest of them up."""


def find(
    steps: Sequence[FrontierStep], told: Told, limits: Thresholds, *, apart: bool = False
) -> Pauses:
    """Look for pauses that recur.

    Args:
        steps: what has been recorded lately, oldest first.
        told: the ``pause`` records of ranks that share a clock, oldest first.
        limits: thresholds.
        apart: whether ranks train each by itself. Then a rank's pauses hold up no other, and all
            those of the rank that loses most by its own count.
    """
    recent = settled(steps, limits)
    if not recent:
        return NO_PAUSES
    long = _outliers(recent, limits)
    if not long and not any(_is_long(what, recent, told, limits) for what, _ in _KINDS):
        return NO_PAUSES
    if apart and len(recent[0].rows) > 1:
        return _of_most(recent, told, limits)
    return _recur(recent, long, told, limits)


def _of_most(recent: Sequence[FrontierStep], told: Told, limits: Thresholds) -> Pauses:
    """Those of the rank that they cost most; the steps are those that any rank has them in."""
    of_each = []
    for rank in range(len(recent[0].rows)):
        own = [account([step.rows[rank]]) for step in recent]
        of_each.append(_recur(own, _outliers(own, limits), {0: told.get(rank, ())}, limits))
    most = max(range(len(of_each)), key=lambda rank: of_each[rank].share)
    others = {pause.what for at, of in enumerate(of_each) if at != most for pause in of.recurring}
    recurring = tuple(
        replace(pause, rank=None if pause.what in others else most)
        for pause in of_each[most].recurring
    )
    return Pauses(recurring, frozenset().union(*(pauses.steps for pauses in of_each)))


def _recur(
    recent: Sequence[FrontierStep], long: Sequence[FrontierStep], told: Told, limits: Thresholds
) -> Pauses:
    """The pauses of ranks each of which holds up the others."""
    found: list[Recurring] = []
    taken: set[int] = set()
    for what, least in _KINDS:
        if not _is_long(what, recent, told, limits):
            continue
        during = _during(recent, told, what)
        events = _events(what, told, limits)
        if len(events) < least:
            continue
        recurring = _recurring(what, events, recent, during - taken, told, limits)
        if recurring is not None:
            found.append(recurring)
            taken |= during & {step.step for step in long} if what == "gc" else during
    nameless = _nameless(recent, long, taken, limits)
    if nameless is not None:
        found.append(nameless[0])
        taken |= nameless[1]
    found.sort(key=lambda pause: -pause.share)
    return Pauses(tuple(found), frozenset(taken))


def _is_long(what: str, recent: Sequence[FrontierStep], told: Told, limits: Thresholds) -> bool:
    """Whether it is worth looking: a rank spends that much time on it, by far too short a time."""
    lengths = (sum(p.duration_us for p in ps if p.what == what) for ps in told.values())
    total_us = sum(step.step_us for step in recent)
    return sum(lengths) >= limits.leave_note / 2 * total_us


def _events(what: str, told: Told, limits: Thresholds) -> list[_Event]:
    """Pauses of one kind after the warm-up.

    Those of several ranks at a time are one, and so are several of a rank in a step: a model and
    its optimizer are saved one after the other.
    """
    all_of_them = sorted(
        (pause.start_ns, rank, pause)
        for rank, pauses in told.items()
        for pause in pauses
        if pause.what == what and (pause.step is None or pause.step >= limits.warmup_steps)
    )
    events: list[_Event] = []
    for start, rank, pause in all_of_them:
        end = start + 1000 * pause.duration_us
        last = events[-1] if events else None
        if last is not None and rank in last.ranks and pause.step == last.step is not None:
            us = last.us + pause.duration_us
            events[-1] = last._replace(end_ns=max(end, last.end_ns), us=us)
        elif last is not None and start <= last.end_ns and rank not in last.ranks:
            us = max(last.us, pause.duration_us)
            ranks = last.ranks | {rank}
            events[-1] = last._replace(end_ns=max(end, last.end_ns), ranks=ranks, us=us)
        else:
            events.append(_Event(start, end, frozenset([rank]), pause.step, pause.duration_us))
    since = events[-1].start_ns - limits.periodic_memory_s * 1e9 if events else 0
    return [event for event in events if event.start_ns >= since]


def _recurring(
    what: str,
    events: Sequence[_Event],
    recent: Sequence[FrontierStep],
    during: set[int],
    told: Told,
    limits: Thresholds,
) -> Recurring | None:
    """What the events cost; None where that is not worth telling, or they are over.

    From one to the next there is one and the time until the next: the last one does not count yet.
    """
    gaps_ns = [b.start_ns - a.start_ns for a, b in pairwise(events)]
    span_us = (events[-1].start_ns - events[0].start_ns) / 1000
    now_ns = max(row.end_ns for row in recent[-1].rows)
    if span_us <= 0 or now_ns - events[-1].end_ns > limits.periodic_over * median(gaps_ns):
        return None
    each = fmean(event.us for event in events)
    if each * (len(events) - 1) < limits.leave_note * span_us:
        return None
    cost = _cost_us(each, recent, during)
    share = min(1.0, cost * (len(events) - 1) / span_us)
    if share < limits.leave_note:
        return None
    # Ranks that nothing synchronises pause in the same step at different times.
    gaps = [(b.step or 0) - (a.step or 0) for a, b in pairwise(events)]
    apart = [gap for gap in gaps if gap > 0]
    ranks = frozenset[int]().union(*(event.ranks for event in events))
    return Recurring(
        what=what,
        share=share,
        each_us=each,
        cost_us=cost,
        every_steps=round(median(apart)) if apart else None,
        count=len(events),
        rank=next(iter(ranks)) if len(ranks) == 1 and len(told) > 1 else None,
    )


def _cost_us(each: float, recent: Sequence[FrontierStep], during: set[int]) -> float:
    """What one of them costs: a device works off its queue meanwhile, which hides some of it."""
    hit = [step.step_us for step in recent if step.step in during]
    free = [step.step_us for step in recent if step.step not in during]
    if hit and free:
        return max(0.0, min(each, fmean(hit) - fmean(free)))
    lags = [row.lag_backward_us or 0 for step in recent for row in step.rows]
    return max(0.0, each - fmean(lags))


def _during(steps: Sequence[FrontierStep], told: Told, what: str) -> set[int]:
    """The recorded steps in which a rank pauses, by that rank's host clock."""
    found: set[int] = set()
    for rank, pauses in told.items():
        if rank >= len(steps[0].rows):
            continue
        first, end_ns = steps[0].rows[rank], partial(_end_ns, rank)
        since = first.end_ns - 1000 * (first.host_us or 0)
        for start in (p.start_ns for p in pauses if p.what == what and p.start_ns >= since):
            place = bisect_right(steps, start, key=end_ns)
            if place < len(steps):
                row = steps[place].rows[rank]
                if row.host_us is None or start >= row.end_ns - 1000 * row.host_us:
                    found.add(row.step)
    return found


def _end_ns(rank: int, step: FrontierStep) -> int:
    return step.rows[rank].end_ns


def _outliers(steps: Sequence[FrontierStep], limits: Thresholds) -> list[FrontierStep]:
    """Steps that are far too long, without their wait for data."""
    if not steps:
        return []
    works = [work_us(step) for step in steps]
    limit = limits.pause_factor * median(works)
    return [step for step, work in zip(steps, works, strict=True) if work > limit]


def _nameless(
    steps: Sequence[FrontierStep],
    long: Sequence[FrontierStep],
    taken: set[int],
    limits: Thresholds,
) -> tuple[Recurring, set[int]] | None:
    """Long steps at regular intervals; only where all steps are recorded can that be seen."""
    long = [step for step in long if step.step not in taken]
    if len(long) < 3 or 2 * len(steps) < steps[-1].step - steps[0].step:
        return None
    gaps = [b.step - a.step for a, b in pairwise(long)]
    every = median(gaps)
    if max(gaps) - min(gaps) > max(1.0, limits.periodic_spread * every) or every < 2:
        return None
    if steps[-1].step - long[-1].step > limits.periodic_over * every:
        return None
    numbers = {step.step for step in long}
    left = numbers | taken
    usual = [step for step in steps if step.step not in left]
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
    told = Recurring("", min(1.0, share), each, each, round(every), len(long), None, phase)
    return told, numbers
