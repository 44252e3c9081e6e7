"""How far two runs of the same thing differ by themselves, and whether a difference exceeds that.

The noise of steps within a run says nothing of it: thousands of steps make a mean that is exact
to a thousandth, and the next run of the same command is 3 % off all the same (another placement in
memory, other neighbours, another temperature). So the sample here is the run, and noise comes from
repeats. Values are compared as logarithms: noise is a share of the value, and the ratio of two runs
is the same whichever comes first.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIGNIFICANCE = 0.01
"""The share of equal pairs that may be told as different. One in a hundred and not the customary
one in twenty: a comparison that runs with every commit must not cry wolf once a month."""

LEAST_REPEATS = 3
"""Repeats from which on each side's own noise is trusted. With two a side the noise of one is a
single difference; it is then pooled over the sides and with earlier runs."""

RESOLUTION = 0.001
"""The least noise that is believed (as a share): repeats that agree better do so by chance. The
best that repeated GPU-bound runs do is about 0.003."""

FEW_FREEDOM = 3.0
"""Degrees of freedom below which noise is hardly known: by Student's t at `SIGNIFICANCE` it may be
larger by a factor of 60 with one of them, and of 10 with two."""

BLIND = 0.25
"""Own choice: where noise so little known hides a change of this share, nothing can be told..."""

BLIND_ALWAYS = 1.0
"""...nor where well-known noise hides one of this: five repeats a side that stray by 10 % show one
of 0.24, and may by chance seem to stray by twice as much."""

_WIDEST = 50.0
"""An interval ends here at the latest (as a logarithm): with one degree of freedom it may be wider
than a number can tell."""

_PANELS = 120
"""Of the quadrature: p-values are right to 0.2 % of their value, and to 1e-6 of it from two degrees
of freedom on."""


@dataclass(frozen=True)
class Noise:
    """How far one run strays from the mean of its like.

    Attributes:
        share: standard deviation of one run, as a share of its value (of its logarithm).
        freedom: degrees of freedom behind it: the fewer, the less it is trusted.
        runs: how many runs it was taken from.
    """

    share: float
    freedom: float
    runs: int


@dataclass(frozen=True)
class Difference:
    """One side against another.

    Attributes:
        relative: the change from the first to the second, as a share (0.05 is 5 % more).
        low: lower end of its interval at ``1 - SIGNIFICANCE``; None where the noise is not known.
        high: upper end.
        p_value: chance of a difference this large between equal sides; None likewise.
        blind: whether the noise is so large, or known from so few runs, that even large changes
            would not show: then one that does not stand out may be real all the same.
    """

    relative: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    blind: bool = False


def two_sided(t: float, freedom: float) -> float:
    """The chance that Student's t with `freedom` (at least 1) lies further from 0 than `t`.

    With ``t = sqrt(freedom) * tan(x)`` the density becomes a power of a cosine, which Simpson's
    rule integrates from there to pi/2.
    """
    if math.isinf(t):
        return 0.0
    begin = math.atan(abs(t) / math.sqrt(freedom))
    width = (math.pi / 2 - begin) / _PANELS
    weights = [1, *(4 if i % 2 else 2 for i in range(1, _PANELS)), 1]
    area: float = sum(
        weight * max(0.0, math.cos(begin + i * width)) ** (freedom - 1.0)
        for i, weight in enumerate(weights)
    )
    return min(1.0, 2 * _scale(freedom) * area * width / 3)


def _scale(freedom: float) -> float:
    """What makes the area under the cosine's power 1 (from -pi/2 to pi/2)."""
    return math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)


def quantile(p_value: float, freedom: float) -> float:
    """The t beyond which (on both sides) lies a share `p_value`: the inverse of `two_sided`.

    By Newton's method from 0: the curve is convex, so that each step stays on its near side.
    """
    t = 0.0
    for _ in range(100):
        density = (
            _scale(freedom) / math.sqrt(freedom) / (1 + t * t / freedom) ** (freedom / 2 + 0.5)
        )
        step = (two_sided(t, freedom) - p_value) / (2 * density)
        t += step
        if step <= 1e-9 * t:
            break
    return t


def of_repeats(values: Sequence[float]) -> Noise | None:
    """The noise of runs of one configuration; None with fewer than two."""
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < 2:
        return None
    return Noise(statistics.stdev(logs), len(logs) - 1.0, len(logs))


def of_history(values: Sequence[float]) -> Noise | None:
    """The noise of runs of one configuration over weeks, oldest first; None with fewer than two.

    From differences of successive runs, so that a change that came and stayed (a new driver, a
    slower commit) counts once and does not pass for noise: J. von Neumann et al., "The mean square
    successive difference", Annals of Mathematical Statistics 12 (1941), 153-162. Its variance is
    that of ``2 (n-1)^2 / (3n-4)`` degrees of freedom.
    """
    logs = [math.log(value) for value in values if value > 0]
    count = len(logs)
    if count < 2:
        return None
    steps = [(b - a) ** 2 for a, b in itertools.pairwise(logs)]
    freedom = 2 * (count - 1) ** 2 / (3 * count - 4)
    return Noise(math.sqrt(sum(steps) / (2 * (count - 1))), freedom, count)


def pooled(parts: Iterable[Noise | None]) -> Noise | None:
    """The noise that several configurations have in common, each counted by its freedom."""
    known = [part for part in parts if part is not None]
    freedom = sum(part.freedom for part in known)
    if not known:
        return None
    square = sum(part.freedom * part.share**2 for part in known) / freedom
    return Noise(math.sqrt(square), freedom, sum(part.runs for part in known))


def compare(
    first: Sequence[float],
    second: Sequence[float],
    noise: Noise | None = None,
    resolution: float = RESOLUTION,
) -> Difference | None:
    """The second side against the first.

    With `LEAST_REPEATS` on both sides by Welch's t-test on logarithms (B. L. Welch, "The
    generalization of Student's problem when several different population variances are involved",
    Biometrika 34 (1947), 28-35), which does not take the noise of the sides to be the same. Else by
    Student's with `noise` as that of one run on either side; with a single run a side this is the
    test of J. R. Crawford and D. C. Howell, The Clinical Neuropsychologist 12 (1998), 482-486.

    Args:
        first: one value a run, above 0.
        second: the same.
        noise: of one run, pooled from wherever there were repeats; None where there were none.
        resolution: the least noise that is believed.

    Returns:
        None where a side has no value, or one that is not above 0 and has no logarithm.
    """
    if not first or not second or min(*first, *second) <= 0:
        return None
    one, two = ([math.log(value) for value in side] for side in (first, second))
    change = statistics.fmean(two) - statistics.fmean(one)
    error, freedom = _error(one, two, noise, resolution)
    if error is None:
        return Difference(math.expm1(change))
    reach = min(quantile(SIGNIFICANCE, freedom) * error, _WIDEST)
    return Difference(
        math.expm1(change),
        math.expm1(change - reach),
        math.expm1(change + reach),
        two_sided(change / error, freedom),
        blind=reach > math.log1p(BLIND if freedom < FEW_FREEDOM else BLIND_ALWAYS),
    )


def _error(
    one: Sequence[float], two: Sequence[float], noise: Noise | None, resolution: float
) -> tuple[float | None, float]:
    """Standard error of the difference of the means, and its degrees of freedom."""
    if min(len(one), len(two)) >= LEAST_REPEATS:
        parts = [
            (max(statistics.stdev(side), resolution) ** 2 / len(side), len(side) - 1)
            for side in (one, two)
        ]
        square = sum(part for part, _ in parts)
        # Satterthwaite's approximation, Biometrics Bulletin 2 (1946), 110-114.
        return math.sqrt(square), square**2 / sum(part**2 / free for part, free in parts)
    if noise is None:
        return None, 0.0
    share = max(noise.share, resolution)
    return share * math.sqrt(1 / len(one) + 1 / len(two)), max(1.0, noise.freedom)


def holm(p_values: Sequence[float | None]) -> list[bool | None]:
    """Which of several differences hold at `SIGNIFICANCE` when all are looked at together.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6 (1979), 65-70. Twenty measures of two equal sides would else have one in five
    comparisons show a difference somewhere.

    Returns:
        One answer a p-value; None where that is None.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    answers: list[bool | None] = [None] * len(p_values)
    holds = True
    for rank, (p_value, place) in enumerate(known):
        holds = holds and p_value <= SIGNIFICANCE / (len(known) - rank)
        answers[place] = holds
    return answers
