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
from statistics import fmean

from .frontier import DATA, FrontierStep
from .thresholds import Thresholds
from .window import RankMeans, Window


def with_skipped(window: Window, steps: Sequence[FrontierStep], limits: Thresholds) -> Window:
    """The window, with the wait for data of all its steps.

    Args:
        window: what the recorded steps alone give.
        steps: the recorded steps, none of them a pause.
        limits: thresholds.

    Returns:
        The window as it is where every step is recorded, where something else may have taken the
        time, or where the difference is more than chance.
    """
    count = window.to_step - window.from_step
    if len(steps) >= count or window.left_us or window.pauses_us or not window.cuda:
        return window
    missing_us = window.seconds * 1e6 / count - window.step_us
    if abs(missing_us) < limits.sampled_off * window.step_us or not _all_wait(window):
        return window
    spread_us = _spread_us(steps, limits)
    chance_us = spread_us * sqrt((1 - len(steps) / count) / len(steps))
    if abs(missing_us) > limits.sampled_errors * chance_us:
        return window
    missing_us = max(missing_us, -window.frontier_us["data"])
    return replace(
        window,
        step_us=window.step_us + missing_us,
        frontier_us=window.frontier_us | {"data": window.frontier_us["data"] + missing_us},
        ranks=tuple(_with_wait(rank, missing_us) for rank in window.ranks),
    )


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
