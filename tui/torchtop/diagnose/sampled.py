"""What the steps between the recorded ones tell: only how long all of them took together.

Of short steps one in several is recorded. Where batches are late now and then, a window has few
late ones, of which a sample may have hardly any or too many (one batch in 16 is late, one step in
four recorded: two or none). How long the steps took on average is known of all of them. Where it
is the wait for data that makes one step longer than another, what the sample lacks of that time
is such a wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean, pstdev

from .frontier import DATA, FrontierStep
from .thresholds import Thresholds
from .window import RankMeans, Window


def with_skipped(window: Window, steps: Sequence[FrontierStep], limits: Thresholds) -> Window:
    """The window, with what the steps that are not recorded took longer than those that are.

    That is a wait for data where the recorded steps show that it is; else it is `unseen_us`.

    Args:
        window: what the recorded steps alone give.
        steps: the recorded steps, none of them a pause.
        limits: thresholds.

    Returns:
        The window as it is where every step is recorded, or where the difference is chance.
    """
    left_out = len(window.durations_us) - window.recorded
    count = window.to_step - window.from_step - left_out
    if len(steps) >= count:
        return window
    missing_us = (window.seconds * 1e6 - window.left_us) / count - window.step_us
    least_us = limits.sampled_off * window.step_us
    if abs(missing_us) < least_us:
        return window
    errors = limits.sampled_errors * sqrt((1 - len(steps) / count) / len(steps))
    spread_us = pstdev(step.step_us for step in steps)
    if missing_us > errors * spread_us and _is_lasting(steps, least_us):
        return replace(window, unseen_us=missing_us)
    if window.left_us or window.pauses_us or not window.cuda or not _all_wait(window):
        return window
    if abs(missing_us) > errors * _spread_us(steps, limits):
        return window
    missing_us = max(missing_us, -window.frontier_us["data"])
    return replace(
        window,
        step_us=window.step_us + missing_us,
        frontier_us=window.frontier_us | {"data": window.frontier_us["data"] + missing_us},
        ranks=tuple(_with_wait(rank, missing_us) for rank in window.ranks),
    )


def _is_lasting(steps: Sequence[FrontierStep], least_us: float) -> bool:
    """Whether it is so in both halves: a single long step, which is no matter, is in one only."""
    half = len(steps) // 2
    return min(_lacking(part) for part in (steps[: half + 1], steps[half:])) >= least_us


def _lacking(steps: Sequence[FrontierStep]) -> float:
    """How much longer the steps from the first to the last took on average than the recorded."""
    first, last = steps[0], steps[-1]
    if last.step <= first.step:
        return 0.0
    span_us = (last.rows[0].end_ns - first.rows[0].end_ns) / 1000
    return span_us / (last.step - first.step) - fmean(step.step_us for step in steps[1:])


def _all_wait(window: Window) -> bool:
    """Whether all ranks wait for data about as long: else it is one rank's loader that is late."""
    least = min(rank.phases_us["data"] for rank in window.ranks)
    return 2 * least >= window.frontier_us["data"] > 0


def _spread_us(steps: Sequence[FrontierStep], limits: Thresholds) -> float:
    """Standard deviation of the steps, where the wait for data makes it up; else 0."""
    waits = [float(step.frontier_us[DATA]) for step in steps]
    times = [float(step.step_us) for step in steps]
    middle, usual = fmean(times), fmean(waits)
    variance = fmean((us - middle) ** 2 for us in times)
    both = fmean((a - middle) * (b - usual) for a, b in zip(times, waits, strict=True))
    return sqrt(variance) if both >= limits.sampled_data * variance else 0.0


def _with_wait(rank: RankMeans, us: float) -> RankMeans:
    data = max(0.0, rank.phases_us["data"] + us)
    host = rank.data_host_us
    return replace(
        rank,
        phases_us=rank.phases_us | {"data": data},
        step_us=rank.step_us - rank.phases_us["data"] + data,
        data_host_us=None if host is None else max(0.0, host + us),
    )
