"""Which steps count."""

from __future__ import annotations

from diagnose.made import row
from torchtop.diagnose.frontier import FrontierStep, account
from torchtop.diagnose.select import select
from torchtop.diagnose.thresholds import DEFAULT, Thresholds


def steps(durations_us: list[int], first: int = 0, phase: str = "forward") -> list[FrontierStep]:
    """Steps of one rank that spend all their time in one phase."""
    made, now = [], 0
    for step, duration in enumerate(durations_us, first):
        now += duration
        made.append(account([row(step, at_ns=now * 1000, **{phase: duration})]))
    return made


def test_the_first_ten_steps_are_left_out() -> None:
    selection = select(steps([300_000] * 40), DEFAULT)

    assert selection.ready
    assert selection.steps[0].step == 10


def test_a_window_spans_twenty_steps_and_five_seconds() -> None:
    assert not select(steps([300_000] * 29), DEFAULT).ready  # 19 steps
    assert select(steps([300_000] * 30), DEFAULT).ready
    assert not select(steps([40_000] * 130), DEFAULT).ready  # 4.8 s
    assert select(steps([40_000] * 140), DEFAULT).ready


def test_a_window_is_not_longer_than_it_needs() -> None:
    selection = select(steps([100_000] * 1000), DEFAULT)

    assert 100 <= len(selection.steps) <= 102
    assert selection.steps[-1].step == 999


def test_compiling_at_the_start_is_left_out() -> None:
    # given a step that compiles after the warm-up
    durations = [300_000] * 60
    durations[15] = 20_000_000

    selection = select(steps(durations), DEFAULT)

    assert 15 not in [step.step for step in selection.steps]
    assert 14 in [step.step for step in select(steps(durations)[:40], DEFAULT).steps]


def test_a_pause_that_came_once_is_left_out_and_kept_apart() -> None:
    # given an evaluation of 8 s late in a run
    durations = [300_000] * 30
    durations[20] = 8_000_000

    selection = select(steps(durations, first=500), DEFAULT)

    assert selection.ready
    assert [step.step_us for step in selection.pauses] == [8_000_000]
    assert {step.step_us for step in selection.steps} == {300_000}


def test_stalls_that_recur_count() -> None:
    # given a loader whose 16 workers make every 16th step wait
    durations = [100_000 if step % 16 else 1_600_000 for step in range(200)]

    selection = select(steps(durations, first=500, phase="data"), DEFAULT)

    assert not selection.pauses
    assert 1_600_000 in {step.step_us for step in selection.steps}


def test_before_the_warm_up_has_ended_there_is_something_to_draw() -> None:
    selection = select(steps([300_000] * 5), DEFAULT)

    assert len(selection.steps) == 5
    assert not selection.ready


def test_the_limits_are_the_users() -> None:
    limits = Thresholds.from_mapping({"warmup_steps": 2, "window_steps": 5, "window_s": 1})

    assert select(steps([300_000] * 8), limits).ready
