"""Steps that are not recorded: what their time tells of late batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from diagnose.made import row
from torchtop.diagnose.facts import Facts
from torchtop.diagnose.frontier import FRONTIER_PHASES, FrontierStep, account
from torchtop.diagnose.pauses import Pauses, Recurring
from torchtop.diagnose.sampled import with_skipped
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.verdicts import judge
from torchtop.diagnose.window import Window, summarise
from torchtop.session.records import is_recorded

COUNT = 144
LATE_US = 640_000
BUSY_US = 23_000


def late(step: int) -> int:
    """An H200 that waits for one batch in 16."""
    return LATE_US if step % 16 == 15 else 0


def everybody(step: int, rank: int) -> int:
    return late(step)


def made(
    stall: Callable[[int, int], int] = everybody, phase: str = "data", ranks: int = 1
) -> list[FrontierStep]:
    """All steps, each as long as it takes."""
    steps, now_us = [], 0
    for step in range(16, 16 + COUNT):
        stalls = [stall(step, rank) for rank in range(ranks)]
        now_us += max(stalls) + BUSY_US
        rows = []
        for mine in stalls:
            phases = {"forward": 8_000, "backward": 15_000}
            phases[phase] = phases.get(phase, 0) + mine
            waits = max(stalls) - mine
            rows.append(row(step, waits, now_us * 1000, data_host_us=phases.get("data"), **phases))
        steps.append(account(rows))
    return steps


def sampled(steps: list[FrontierStep]) -> tuple[Window, Window]:
    """A window of the recorded steps, as it is and with the others."""
    few = [steps[0], *(s for s in steps[1:-1] if is_recorded(s.step, 4)), steps[-1]]
    window = summarise(few, True, DEFAULT)
    return window, with_skipped(window, few, DEFAULT)


def test_late_batches_between_the_recorded_ones_are_found() -> None:
    steps = made()
    whole = summarise(steps, True, DEFAULT)

    few, found = sampled(steps)

    # given a sample that is off
    assert abs(few.step_us - whole.step_us) > 0.1 * whole.step_us
    assert found.step_us == pytest.approx(whole.step_us, rel=0.01)
    assert found.share("data") == pytest.approx(whole.share("data"), abs=0.01)
    assert found.ranks[0].phases_us["data"] == pytest.approx(
        whole.ranks[0].phases_us["data"], rel=0.02
    )
    assert sum(found.frontier_us[p] for p in FRONTIER_PHASES) == pytest.approx(found.step_us)
    assert sum(found.ranks[0].phases_us.values()) == pytest.approx(found.ranks[0].step_us)


def test_where_every_step_is_recorded_nothing_changes() -> None:
    steps = made()
    window = summarise(steps, True, DEFAULT)

    assert with_skipped(window, steps, DEFAULT) is window


def test_time_that_another_phase_makes_up_is_no_wait_for_data() -> None:
    few, found = sampled(made(phase="forward"))

    assert found is few


def test_what_one_ranks_loader_costs_is_not_spread_over_all() -> None:
    few, found = sampled(made(lambda step, rank: late(step) if rank else 0, ranks=2))

    assert found is few


def test_a_difference_that_is_no_chance_is_something_else() -> None:
    # given a sample of which all batches come about as late, and a minute that nobody recorded
    steps = made(lambda step, rank: 20_000 + step % 3 * 1_000)
    few = [step for step in steps if is_recorded(step.step, 4)]
    window = replace(summarise(few, True, DEFAULT), seconds=60.0)

    assert with_skipped(window, few, DEFAULT) is window


def test_pauses_are_no_late_batches() -> None:
    steps = made()
    few = [step for step in steps if is_recorded(step.step, 4)]
    window = summarise(few, True, DEFAULT, pauses=[steps[1]])

    assert with_skipped(window, few, DEFAULT) is window


@pytest.mark.parametrize(("cuda", "paused_us"), [(False, 400_000), (True, 400_000)])
def test_rare_long_steps_between_the_recorded_ones_are_told(cuda: bool, paused_us: int) -> None:
    # given a pause of the script in one step of 50, none of which is recorded
    def stall(step: int, rank: int) -> int:
        return paused_us if step in (51, 101, 151) else 0

    steps = made(stall, phase="other")
    few = [steps[0], *(s for s in steps[1:-1] if is_recorded(s.step, 4)), steps[-1]]
    assert not {51, 101, 151} & {step.step for step in few}

    found = with_skipped(summarise(few, cuda, DEFAULT), few, DEFAULT)
    verdict = judge(found, Facts(), None, DEFAULT).verdict

    lost = 3 * paused_us / (3 * paused_us + COUNT * BUSY_US)
    assert found.unseen_us == pytest.approx(3 * paused_us / COUNT, rel=0.02)
    assert verdict.kind == "UNDECIDED"
    assert verdict.headline == (
        f"{round(100 * lost)} % of the time is in rare long steps that were not measured"
    )
    # but where the ranks have told what it is, that is it
    pause = Recurring("save", lost, paused_us, paused_us, 50, 3, 0)
    told = judge(found, Facts(), None, DEFAULT, Pauses((pause,))).verdict
    assert told.kind == "PERIODIC"


def test_steps_that_differ_as_much_by_chance_are_no_long_ones() -> None:
    def stall(step: int, rank: int) -> int:
        return 20_000 * (step * 7919 % 13)

    steps = made(stall, phase="forward")
    few = [steps[0], *(s for s in steps[1:-1] if is_recorded(s.step, 4)), steps[-1]]

    assert with_skipped(summarise(few, False, DEFAULT), few, DEFAULT).unseen_us == 0.0


def test_a_single_long_step_is_no_matter() -> None:
    steps = made(lambda step, rank: 2_000_000 if step == 51 else 0, phase="other")
    few = [steps[0], *(s for s in steps[1:-1] if is_recorded(s.step, 4)), steps[-1]]

    assert with_skipped(summarise(few, False, DEFAULT), few, DEFAULT).unseen_us == 0.0
