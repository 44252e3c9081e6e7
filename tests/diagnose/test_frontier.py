"""Frontier accounting."""

from __future__ import annotations

import random

import pytest

from diagnose.made import by_phase, row
from diagnose.simulator import Job, Rank, simulate
from torchtop.diagnose.frontier import LOCAL_PHASES, FrontierStep, account


def test_one_rank_is_its_own_frontier() -> None:
    step = account([row(data=5, forward=20, backward=40, exposed=1, optimizer=3)])

    assert by_phase(step) == {
        "data": 5,
        "forward": 20,
        "backward": 40,
        "exposed_comm": 1,
        "optimizer": 3,
    }
    assert (step.step_us, step.excess_us, step.leader, step.base) == (69, 0, 0, 0)


def test_what_the_others_wait_for_is_charged_to_the_phase_that_is_late() -> None:
    # given rank 1 late by 30 before the optimizer, and rank 0 waiting as long for the gradients
    rows = [
        row(optimizer=2, forward=20, backward=40, exposed=31),
        row(pre_optimizer=30, optimizer=2, forward=20, backward=40, exposed=1),
    ]

    step = account(rows)

    assert by_phase(step)["pre_optimizer"] == 30
    assert by_phase(step)["exposed_comm"] == 1
    assert step.step_us == 93
    assert (step.leader, step.base, step.excess_us) == (1, 0, 30)
    assert step.excess_by_phase_us[LOCAL_PHASES.index("pre_optimizer")] == 30
    assert step.waits_us == (30, 0)


def test_two_ranks_late_in_different_phases_cost_the_step_once() -> None:
    # given one late by 10 in data and one late by 10 in backward
    rows = [
        row(data=10, forward=20, backward=40, exposed=1),
        row(forward=20, backward=50, exposed=1),
    ]

    step = account(rows)

    assert step.step_us == 71
    assert by_phase(step) == {"data": 10, "forward": 20, "backward": 40, "exposed_comm": 1}


def test_the_base_is_the_lower_median() -> None:
    rows = [row(backward=us, exposed=100 - us) for us in (90, 20, 30, 40)]

    step = account(rows)

    assert (step.base, step.leader, step.excess_us) == (2, 0, 60)


def test_the_excess_is_spread_over_the_phases_that_lose_it() -> None:
    # given a leader that loses 40 in forward, 20 in backward, and makes up for 30 in data
    rows = [row(data=30, forward=10, backward=10), row(forward=50, backward=30)]

    step = account(rows)

    assert step.excess_us == 30
    assert sum(step.excess_by_phase_us) == pytest.approx(30)
    assert step.excess_by_phase_us[LOCAL_PHASES.index("forward")] == pytest.approx(20)


def test_a_wait_in_the_broadcast_of_buffers_is_no_work() -> None:
    # given rank 0 late by 30, for which rank 1 waits at the start of forward
    rows = [
        row(pre_optimizer=30, forward=20, backward=40, exposed=1),
        row(forward=50, backward=40, exposed=1),
    ]

    step = account(rows, broadcast=True)

    assert (step.leader, step.excess_us, step.waits_us) == (0, 30, (0, 30))
    assert step.step_us == 91
    assert step.rows == tuple(rows), "what the ranks told stays as it is"


def test_without_a_broadcast_a_long_forward_is_work() -> None:
    rows = [row(data=30, forward=20, backward=40), row(forward=50, backward=40)]

    assert account(rows).excess_us == 0


def frontier_steps(job: Job) -> list[FrontierStep]:
    from torchtop.diagnose.align import Aligner
    from torchtop.diagnose.rows import parse_steps

    run = simulate(job)
    aligner = Aligner(len(job.ranks))
    steps: list[FrontierStep] = []
    for rank, rows in enumerate(run.rows):
        columns = {name: [entry[name] for entry in rows] for name in rows[0]}
        steps += aligner.add(rank, parse_steps({"kind": "steps"} | columns))
    return steps


def test_the_frontier_sums_to_the_step_of_every_rank() -> None:
    # given ranks that differ in every way
    rnd = random.Random(1)
    ranks = tuple(
        Rank(
            forward_us=rnd.uniform(100, 300),
            backward_us=rnd.uniform(100, 300),
            sleep_us={"other": rnd.uniform(0, 9000)},
        )
        for _ in range(4)
    )

    steps = frontier_steps(Job(ranks=ranks, steps=40, host_jitter=0.05))

    for step in steps[1:]:
        assert sum(step.frontier_us) == step.step_us
        for told in step.rows:
            assert sum(told.local_us) + told.exposed_us == pytest.approx(step.step_us, abs=12)
