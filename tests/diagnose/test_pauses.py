"""Pauses that recur: what they cost, how often they come, and when they are over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from diagnose.made import row
from torchtop.diagnose.frontier import FrontierStep, account
from torchtop.diagnose.pauses import Pauses, find
from torchtop.diagnose.ranks import Pause
from torchtop.diagnose.thresholds import DEFAULT

STEP_US = 40_000
FIRST = 200
"""The first step: long after the start-up, in which long steps are compiling."""


def made(
    count: int, every: int = 0, longer_us: int = 0, phase: str = "other", ranks: int = 2
) -> list[FrontierStep]:
    """Steps of which one in `every` is longer, for all ranks."""
    steps, now_us = [], 0
    for step in range(FIRST, FIRST + count):
        extra = longer_us if every and step % every == 0 else 0
        now_us += STEP_US + extra
        values = {"forward": STEP_US, phase: extra, "host_us": STEP_US + extra}
        steps.append(account([row(step, at_ns=now_us * 1000, **values) for _ in range(ranks)]))
    return steps


def told(
    steps: Sequence[FrontierStep], what: str, every: int, us: int, rank: int = 0
) -> dict[int, list[Pause]]:
    """The records of one rank, of pauses that the made steps have."""
    found = [
        Pause(what, step.step, step.rows[rank].end_ns - 1000 * us, us)
        for step in steps
        if step.step % every == 0
    ]
    return {0: [], 1: []} | {rank: found}


def only(pauses: Pauses) -> tuple[str, float, int | None, int | None]:
    (pause,) = pauses.recurring
    return pause.what, pause.share, pause.every_steps, pause.rank


def test_a_run_without_any_has_none() -> None:
    assert find(made(100), {0: [], 1: []}, DEFAULT) == Pauses()
    assert find([], {}, DEFAULT) == Pauses()


@pytest.mark.parametrize("what", ["save", "eval", "gc"])
def test_a_pause_costs_its_share_of_the_time(what: str) -> None:
    # given 400 ms in every 20th step of 40 ms: a third of the time
    steps = made(100, every=20, longer_us=400_000)

    pauses = find(steps, told(steps, what, 20, 400_000), DEFAULT)

    assert only(pauses) == (what, pytest.approx(1 / 3, abs=0.01), 20, 0)
    assert pauses.steps == {200, 220, 240, 260, 280}


def test_what_the_device_does_meanwhile_is_no_cost() -> None:
    # given pauses of 400 ms, of which the device is held up for 100 ms
    steps = made(100, every=20, longer_us=100_000)
    longer = {0: [p._replace(duration_us=400_000) for p in told(steps, "save", 20, 90_000)[0]]}

    (pause,) = find(steps, longer, DEFAULT).recurring

    assert (pause.each_us, pause.cost_us) == (400_000, pytest.approx(100_000))
    assert pause.share == pytest.approx(1 / 9, abs=0.01)


def test_a_model_and_its_optimizer_saved_one_after_the_other_are_one() -> None:
    steps = made(100, every=20, longer_us=400_000)
    halves = [
        part
        for pause in told(steps, "save", 20, 400_000)[0]
        for part in (
            pause._replace(duration_us=200_000),
            pause._replace(start_ns=pause.start_ns + 200_000_000, duration_us=200_000),
        )
    ]

    (pause,) = find(steps, {0: halves, 1: []}, DEFAULT).recurring

    assert (pause.count, pause.each_us) == (5, 400_000)


def test_an_evaluation_of_all_ranks_is_one() -> None:
    steps = made(100, every=20, longer_us=400_000)
    one = told(steps, "eval", 20, 400_000)[0]

    (pause,) = find(steps, {0: one, 1: one}, DEFAULT).recurring

    assert (pause.count, pause.rank) == (5, None)


def test_ranks_that_evaluate_one_after_the_other_do_so_at_the_same_steps() -> None:
    # given ranks that nothing synchronises: each evaluates at its own time, in every 20th step
    steps = made(100, every=20, longer_us=400_000)
    first = told(steps, "eval", 20, 200_000)[0]
    second = [pause._replace(start_ns=pause.start_ns - 600_000_000) for pause in first]

    (pause,) = find(steps, {0: first, 1: second}, DEFAULT).recurring

    assert (pause.every_steps, pause.count) == (20, 10)


@pytest.mark.parametrize("kinds", [("save", "save"), ("save", "eval"), ("", "")], ids=str)
def test_pauses_of_ranks_that_train_apart_do_not_add_up(kinds: tuple[str, str]) -> None:
    # given two ranks, each of which pauses for 100 ms in one of 20 steps, at different times
    steps, ends_us, pauses = [], [0, 0], {0: list[Pause](), 1: list[Pause]()}
    for step in range(FIRST, FIRST + 200):
        rows = []
        for rank in (0, 1):
            extra = 100_000 if step % 20 == 10 * rank else 0
            ends_us[rank] += STEP_US + extra
            values = {"forward": STEP_US, "other": extra, "host_us": STEP_US + extra}
            rows.append(row(step, at_ns=ends_us[rank] * 1000, **values))
            if extra and kinds[rank]:
                start_ns = 1000 * (ends_us[rank] - extra)
                pauses[rank].append(Pause(kinds[rank], step, start_ns, extra))
        steps.append(account(rows))

    together, apart = (find(steps, pauses, DEFAULT, apart=apart) for apart in (False, True))

    # then each loses what it pauses itself
    assert apart.share == pytest.approx(100 / (20 * 40 + 100), rel=0.06)
    assert together.share == pytest.approx(2 * apart.share, rel=0.12)
    # and the steps of both are told of, and no rank that is not the only one
    assert apart.steps == together.steps == {*range(FIRST, FIRST + 200, 10)}
    (pause,) = apart.recurring
    assert pause.rank == (None if kinds[0] == kinds[1] else kinds.index(pause.what))


def test_one_of_a_kind_does_not_recur() -> None:
    steps = made(100, every=250, longer_us=900_000)

    assert find(steps, told(steps, "save", 250, 900_000), DEFAULT) == Pauses()


def test_two_collections_do_not_recur_yet() -> None:
    # a script may collect garbage when it has ended something
    steps = made(100, every=45, longer_us=400_000)

    assert len(told(steps, "gc", 45, 400_000)[0]) == 2
    assert find(steps, told(steps, "gc", 45, 400_000), DEFAULT) == Pauses()


def test_pauses_that_have_ended_are_over() -> None:
    # given checkpoints every 10 steps, and none in the last 60
    steps = made(100, every=10, longer_us=400_000)
    early = {0: [p for p in told(steps, "save", 10, 400_000)[0] if (p.step or 0) < 240], 1: []}
    plain = made(100)

    assert find(plain, early, DEFAULT) == Pauses()


def test_pauses_of_the_warm_up_do_not_count() -> None:
    steps = made(100, every=20, longer_us=400_000)
    early = {0: [p._replace(step=3) for p in told(steps, "save", 20, 400_000)[0]], 1: []}

    assert "save" not in [pause.what for pause in find(steps, early, DEFAULT).recurring]


def test_short_collections_are_no_pause_worth_telling() -> None:
    steps = made(100, every=2, longer_us=1_000)

    assert find(steps, told(steps, "gc", 2, 1_000), DEFAULT) == Pauses()


def test_long_steps_at_intervals_are_told_without_a_record() -> None:
    steps = made(100, every=20, longer_us=400_000, phase="pre_optimizer")

    pauses = find(steps, {0: [], 1: []}, DEFAULT)

    assert only(pauses) == ("", pytest.approx(1 / 3, abs=0.01), 20, None)
    assert pauses.recurring[0].phase == "pre_optimizer"


def test_long_steps_at_no_interval_are_not() -> None:
    steps = made(100)
    for index in (5, 9, 40, 77):
        long = row(FIRST + index, forward=STEP_US, other=400_000)
        steps[index] = account([long, long])

    assert find(steps, {}, DEFAULT) == Pauses()


def test_waits_for_data_are_no_pause() -> None:
    steps = made(100, every=16, longer_us=600_000, phase="data")

    assert find(steps, {}, DEFAULT) == Pauses()


def test_long_steps_are_not_told_where_most_are_not_recorded() -> None:
    steps = [step for step in made(400, every=20, longer_us=400_000) if step.step % 4 == 0]

    assert find(steps, {}, DEFAULT) == Pauses()
