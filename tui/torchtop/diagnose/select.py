"""Which steps a verdict is about: the newest, without warm-up and one-off pauses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from .frontier import DATA, FrontierStep
from .thresholds import Thresholds

_USUAL_STEPS = 50
"""Enough for a median that a few long steps do not move."""


class Selection(NamedTuple):
    """The steps of a window."""

    steps: list[FrontierStep]
    pauses: list[FrontierStep]
    """Steps in the same span that are left out: too rare to hold the run back."""
    recurring: list[FrontierStep]
    """Those that are left out because they are told by themselves (see `pauses`)."""
    ready: bool
    """Whether the steps are enough for a verdict."""


def usual_work_us(steps: Sequence[FrontierStep], limits: Thresholds) -> float:
    """Median work of the newest steps after the warm-up; 0 where there are none."""
    known = [work_us(s) for s in steps[-_USUAL_STEPS:] if s.step >= limits.warmup_steps]
    return median(known) if known else 0.0


def work_us(step: FrontierStep) -> int:
    """Step time without the wait for data, which is bursty from the first step on."""
    return step.step_us - step.frontier_us[DATA]


def is_startup(step: FrontierStep, usual_us: float, limits: Thresholds) -> bool:
    """Whether a step belongs to the warm-up.

    Args:
        step: the step.
        usual_us: `usual_work_us` of steps up to now.
        limits: thresholds.
    """
    if step.step < limits.warmup_steps:
        return True
    if step.step >= limits.startup_steps:
        return False
    work = work_us(step)
    return work > limits.startup_s * 1e6 and work > limits.startup_factor * usual_us


def settled(steps: Sequence[FrontierStep], limits: Thresholds) -> list[FrontierStep]:
    """The newest steps, without those of the warm-up."""
    recent = steps[-limits.pause_steps :]
    first = bisect_left(recent, limits.startup_steps, key=lambda step: step.step)
    usual = usual_work_us(steps, limits) if first else 0.0
    early = [step for step in recent[:first] if not is_startup(step, usual, limits)]
    return [*early, *recent[first:]]


def select(
    steps: Sequence[FrontierStep], limits: Thresholds, recurring: frozenset[int] = frozenset()
) -> Selection:
    """Choose from the newest steps, oldest first.

    Where all of them are warm-up, they are returned (not ready): something to draw, at least.

    Args:
        steps: what has been recorded lately.
        limits: thresholds.
        recurring: the numbers of steps to leave out: pauses that recur are told by themselves.
    """
    recent = _known(settled(steps, limits), limits)
    plain = [step for step in recent if step.step not in recurring]
    if not plain:
        return Selection(list(steps[-limits.window_steps :]), [], [], False)
    limit_us = pause_limit_us(plain, limits)
    chosen: list[FrontierStep] = []
    pauses: list[FrontierStep] = []
    left: list[FrontierStep] = []
    seconds = 0.0
    for step in reversed(recent):
        if step.step in recurring:
            left.append(step)
        else:
            (pauses if step.step_us > limit_us else chosen).append(step)
        seconds = (recent[-1].rows[0].end_ns - step.rows[0].end_ns) / 1e9
        if len(chosen) >= limits.window_steps and seconds >= limits.window_target_s:
            break
    chosen.reverse()
    ready = len(chosen) >= limits.window_steps and seconds >= limits.window_s
    return Selection(chosen or plain[-1:], pauses[::-1], left[::-1], ready and bool(chosen))


def _known(steps: list[FrontierStep], limits: Thresholds) -> list[FrontierStep]:
    """Without the steps of which some phase is unknown, unless most are like that."""
    known = [step for step in steps if not step.patchy]
    return known if len(known) >= (1 - limits.unknown_rows) * len(steps) else steps


def pause_limit_us(steps: Sequence[FrontierStep], limits: Thresholds) -> float:
    """The step time above which a step is a pause; infinite where long steps are the rule.

    A stall that recurs (with W loader workers, in every W-th step) is the run's own pace. One that
    costs less than a note over all recent steps, or has come once only, is not.
    """
    middle = median(step.step_us for step in steps)
    limit = limits.pause_factor * middle
    lost = [step.step_us - middle for step in steps if step.step_us > limit]
    total = sum(step.step_us for step in steps)
    rare = len(lost) == 1 or sum(lost) < limits.note * total
    return limit if rare else float("inf")
