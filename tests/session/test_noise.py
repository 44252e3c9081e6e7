"""Run-to-run noise: the distribution against published tables, and how often it is right."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from torchtop.session import noise
from torchtop.session.noise import Noise

TABLE = [
    # degrees of freedom, two-sided p, t: any textbook's table of Student's distribution
    (1, 0.05, 12.7062),
    (1, 0.01, 63.6567),
    (2, 0.05, 4.3027),
    (2, 0.01, 9.9248),
    (4, 0.01, 4.6041),
    (8, 0.01, 3.3554),
    (30, 0.05, 2.0423),
    (120, 0.01, 2.6174),
]


@pytest.mark.parametrize(("freedom", "p_value", "t"), TABLE)
def test_students_distribution_is_that_of_the_tables(
    freedom: float, p_value: float, t: float
) -> None:
    assert noise.two_sided(t, freedom) == pytest.approx(p_value, rel=2e-4)
    assert noise.two_sided(-t, freedom) == noise.two_sided(t, freedom)
    assert noise.quantile(p_value, freedom) == pytest.approx(t, rel=2e-4)


def test_the_ends_of_the_distribution() -> None:
    assert noise.two_sided(0.0, 3.7) == pytest.approx(1.0)
    assert noise.two_sided(math.inf, 3.7) == 0.0
    assert 0 <= noise.two_sided(1e9, 5) < 1e-12


def test_welch_gives_the_published_result() -> None:
    # given the logarithms of the data set A of the R manual's sleep example
    one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    # when
    found = noise.compare([math.exp(v) for v in one], [math.exp(v) for v in two])
    # then t = -1.8608, df = 17.776, p = 0.07939, as t.test(extra ~ group, data = sleep) prints
    assert found is not None and found.p_value == pytest.approx(0.07939, rel=1e-3)
    assert math.log1p(found.relative) == pytest.approx(1.58)


def test_a_single_run_against_repeats_takes_their_noise_for_both() -> None:
    # given four repeats with a standard deviation s of their logarithms, and one run 10 % off
    repeats = [math.exp(x) for x in (-0.01, 0.01, -0.01, 0.01)]
    floor = noise.of_repeats(repeats)
    assert floor is not None
    # when
    found = noise.compare(repeats, [math.exp(0.1)], floor)
    # then t is the difference over s * sqrt(1 + 1/4), with 3 degrees of freedom
    t = 0.1 / (floor.share * math.sqrt(1.25))
    assert found is not None and found.p_value == pytest.approx(noise.two_sided(t, 3))


def test_without_any_noise_known_nothing_is_told_as_real() -> None:
    found = noise.compare([100.0], [90.0])
    assert found is not None and found.relative == pytest.approx(-0.1)
    assert (found.low, found.high, found.p_value) == (None, None, None)


def test_what_has_no_logarithm_is_not_compared() -> None:
    assert noise.compare([], [1.0]) is None
    assert noise.compare([1.0, 0.0], [1.0]) is None
    assert noise.of_repeats([1.0]) is noise.of_history([1.0]) is None


def test_repeats_that_agree_by_chance_do_not_make_a_hair_a_difference() -> None:
    found = noise.compare([100.0] * 3, [100.05] * 3)
    assert found is not None and found.p_value is not None
    assert found.p_value > noise.SIGNIFICANCE


def test_a_change_that_stayed_is_no_noise_of_the_history() -> None:
    rng = random.Random(3)
    before = [100 * math.exp(rng.gauss(0, 0.003)) for _ in range(20)]
    after = [80 * math.exp(rng.gauss(0, 0.003)) for _ in range(20)]
    told, naive = noise.of_history(before + after), noise.of_repeats(before + after)
    assert told is not None and naive is not None
    assert naive.share > 0.1
    assert told.share < 0.03


def test_pooling_counts_each_by_its_freedom() -> None:
    found = noise.pooled([Noise(0.1, 1, 2), None, Noise(0.2, 3, 4)])
    assert found == Noise(pytest.approx(math.sqrt((0.01 + 3 * 0.04) / 4)), 4, 6)
    assert noise.pooled([None]) is None


def test_an_absurd_pair_overflows_nothing() -> None:
    floor = noise.of_repeats([1e-9, 1e9])
    found = noise.compare([1e-9], [1e9], floor)
    assert found is not None and found.high is not None and math.isfinite(found.high)


def test_holm_is_stricter_the_more_is_looked_at() -> None:
    assert noise.holm([0.009]) == [True]
    assert noise.holm([0.009, None, 0.5]) == [False, None, False]
    assert noise.holm([0.004, 0.004, 0.5]) == [False, False, False]
    assert noise.holm([0.003, 0.5, 0.004]) == [True, False, True]


Draw = Callable[[random.Random, float], float]


def _normal(rng: random.Random, spread: float) -> float:
    return rng.gauss(0, spread)


def _heavy(rng: random.Random, spread: float) -> float:
    """Student's t with three degrees of freedom: now and then a run is far off."""
    square = sum(rng.gauss(0, 1) ** 2 for _ in range(3))
    return spread * rng.gauss(0, 1) / math.sqrt(square)


def _two_modes(rng: random.Random, spread: float) -> float:
    """A fast and a slow placement, as of processes on NUMA nodes."""
    return (spread if rng.random() < 0.5 else -spread) + rng.gauss(0, spread / 10)


@pytest.mark.parametrize("draw", [_normal, _heavy, _two_modes])
@pytest.mark.parametrize("spread", [0.1, 0.003])
def test_equal_sides_of_five_repeats_are_called_equal(draw: Draw, spread: float) -> None:
    rng = random.Random(7)
    trials = 200

    def told_different() -> bool:
        one, two = ([math.exp(draw(rng, spread)) for _ in range(5)] for _ in range(2))
        found = noise.compare(one, two)
        return found is not None and (found.p_value or 0) <= noise.SIGNIFICANCE

    assert sum(told_different() for _ in range(trials)) <= trials * 0.03


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_five_per_cent_are_found_where_the_gpu_is_the_limit(repeats: int) -> None:
    rng = random.Random(11)
    trials = 100

    def found() -> bool:
        one = [math.exp(_normal(rng, 0.003)) for _ in range(repeats)]
        two = [0.95 * math.exp(_normal(rng, 0.003)) for _ in range(repeats)]
        floor = noise.pooled([noise.of_repeats(one), noise.of_repeats(two)])
        told = noise.compare(one, two, floor)
        return told is not None and (told.p_value or 0) <= noise.SIGNIFICANCE

    assert sum(found() for _ in range(trials)) >= trials * (0.9 if repeats == 2 else 0.99)
