"""Which steps are kept: the same on all ranks without talking, and in no beat with the loader."""

from __future__ import annotations

from itertools import pairwise

import pytest

from torchtop.session.records import bucket_microseconds, is_recorded, latency_bucket

STRIDES = [2**power for power in range(11)]
STEPS = range(200_000)


def kept(stride: int) -> set[int]:
    return {step for step in STEPS if is_recorded(step, stride)}


def test_sets_for_larger_strides_lie_inside_those_for_smaller() -> None:
    sets = [kept(stride) for stride in STRIDES]

    assert sets[0] == set(STEPS)
    assert all(larger < smaller for smaller, larger in pairwise(sets))


@pytest.mark.parametrize("stride", STRIDES)
def test_about_one_in_stride_is_kept_in_every_part_of_a_run(stride: int) -> None:
    for start in (0, 50_000, 150_000):
        part = sum(is_recorded(step, stride) for step in range(start, start + 40_000))
        assert part == pytest.approx(40_000 / stride, rel=0.1, abs=2)


@pytest.mark.parametrize("stride", [2, 4, 8, 16])
@pytest.mark.parametrize("workers", range(2, 17))
def test_every_phase_of_a_loaders_cycle_is_seen_alike(stride: int, workers: int) -> None:
    """With W workers every W-th step waits: its share among the kept ones must be the true one."""
    steps = [step for step in range(20_000) if is_recorded(step, stride)]

    for phase in range(workers):
        share = sum(step % workers == phase for step in steps) / len(steps)
        assert share == pytest.approx(1 / workers, rel=0.15)


def test_gaps_are_short() -> None:
    steps = sorted(kept(8))

    assert max(b - a for a, b in pairwise(steps)) <= 8 * 3


@pytest.mark.parametrize("microseconds", [1, 250, 36_500, 1_000_000, 3_600_000_000])
def test_a_latency_bucket_is_within_half_a_percent(microseconds: int) -> None:
    assert bucket_microseconds(latency_bucket(microseconds)) == pytest.approx(
        microseconds, rel=0.0051
    )


def test_a_latency_of_nothing_has_a_bucket() -> None:
    assert latency_bucket(0) == 0
