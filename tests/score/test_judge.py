"""Judging made-up recordings: what is right, when, and what stood wrongly before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from score import judge, report
from score.recording import Part, Phases, Recording, Steps
from score.trace import PHASES, TraceStep
from torchtop_workloads.faults import find

SECOND = 1_000_000_000
SETTLED = 100 * SECOND
FAULT = Part("fault", 0, 500, 10, SETTLED, SETTLED + 20 * SECOND)
FIXED = Part("fixed", 500, 600, 510, SETTLED + 21 * SECOND, SETTLED + 23 * SECOND)
PROFILE = Part("profile", 600, 620, 610, SETTLED + 25 * SECOND, SETTLED + 26 * SECOND)

Told = tuple[str, str, int | None, str | None]
WARMING: Told = ("UNDECIDED", "unknown", None, None)
RIGHT: Told = ("STRAGGLER", "critical", 1, "backward")
COMM: Told = ("COMM", "warn", None, "exposed_comm")
NOTE: Told = ("DATA", "note", None, "data")


def analyses(verdicts: Sequence[Told], to_step: int = 100) -> list[dict[str, Any]]:
    """One a second from the end of the warm-up on."""
    return [
        {
            "kind": "analysis",
            "mono_ns": SETTLED + (index + 1) * SECOND,
            "warming_up": verdict is WARMING,
            "window": {"to_step": to_step},
            "verdict": {
                **dict(zip(("kind", "severity", "rank", "phase"), verdict, strict=True)),
                "share": 0.4,
                "gain_bound": 1.67,
                "headline": "so it is",
            },
        }
        for index, verdict in enumerate(verdicts)
    ]


def recording(
    told: list[dict[str, Any]], *parts: Part, steps: Steps | None = None, **more: Any
) -> Recording:
    by_mode = {part.mode: part for part in (FAULT, *parts)}
    return Recording(by_mode, steps or {}, more.get("ends_ns", {}), told, {})


def judged(*verdicts: Told, code: str = "F6b") -> judge.Row:
    return judge.judge(find(code), recording(analyses(verdicts)), {})


def row(**phases: float) -> Phases:
    return {phase: phases.get(phase, 0.0) for phase in PHASES}


# -- verdicts ------------------------------------------------------------------------------------


def test_the_last_verdict_counts_and_the_first_right_one_is_timed() -> None:
    # when
    found = judged(WARMING, WARMING, COMM, RIGHT, RIGHT)
    # then
    assert (found.kind, found.rank, found.phase) == ("STRAGGLER", 1, "backward")
    assert found.first_right_s == 4.0
    assert found.wrong == {"COMM": 1.0}
    assert found.passed


def test_a_right_verdict_that_does_not_stay_is_not_enough() -> None:
    found = judged(RIGHT, RIGHT, COMM)
    assert not found.right
    assert not found.passed


def test_one_that_comes_late_is_not_enough() -> None:
    # given steps of 40 ms, so that it is due after ten seconds
    found = judged(*[WARMING] * 10, RIGHT)
    # then
    assert found.due_s == 10.0
    assert found.right
    assert not found.in_time
    assert not found.passed


def test_with_slow_steps_it_is_due_after_25_of_them() -> None:
    # given 40 steps of half a second
    slow = Part("fault", 0, 50, 10, SETTLED, SETTLED + 20 * SECOND)
    told = Recording({"fault": slow}, {}, {}, analyses([*[WARMING] * 11, RIGHT], 50), {})
    # when
    found = judge.judge(find("F6b"), told, {})
    # then
    assert found.due_s == 12.5
    assert found.passed


def test_a_wrong_verdict_may_stand_for_a_window_but_no_longer() -> None:
    assert judged(RIGHT, *[COMM] * 10, RIGHT).passed
    found = judged(RIGHT, *[COMM] * 11, RIGHT)
    assert found.longest_wrong_s == 11.0
    assert not found.passed


def test_notes_and_abstentions_are_no_wrong_verdicts() -> None:
    found = judged(NOTE, ("UNDECIDED", "unknown", None, None), RIGHT)
    assert found.wrong == {}


def test_a_verdict_on_steps_after_the_fault_is_not_judged() -> None:
    # given a last analysis whose window reaches into the next part
    told = analyses([RIGHT, RIGHT]) + analyses([COMM], to_step=501)
    # when
    found = judge.judge(find("F6b"), recording(told), {})
    # then
    assert found.kind == "STRAGGLER"


def test_a_healthy_run_may_have_no_warning() -> None:
    healthy: Told = ("COMPUTE-BOUND", "ok", None, None)
    assert judged(healthy, code="F0").passed
    assert not judged(NOTE, code="F0").passed
    found = judged(COMM, healthy, code="F0")
    assert found.wrong == {"COMM": 1.0}


def test_what_never_trained_is_told() -> None:
    # given
    told = Recording({}, {}, {}, [], {})
    # when
    found = judge.judge(find("F6b"), told, {})
    # then
    assert found.problem is not None
    assert not found.passed
    assert judged(WARMING).problem == "there was no verdict before the fault ended"


# -- without the cause ---------------------------------------------------------------------------


def test_the_real_gain_is_the_ratio_of_the_step_times() -> None:
    # given 490 steps in 20 s, and 90 without the cause in 2 s
    found = judge.judge(find("F6b"), recording(analyses([RIGHT]), FIXED), {})
    # then
    assert found.step_ms == pytest.approx(20_000 / 490)
    assert found.gain == pytest.approx((20 / 490) / (2 / 90))
    assert found.gain_bound == 1.67


# -- the trace -----------------------------------------------------------------------------------

FAST = row(forward=30, backward=20, exposed_comm=45, optimizer=5)
SLOW = row(forward=30, backward=60, exposed_comm=5, optimizer=5)


def traces(first: Phases, second: Phases, steps: range, **idle: float) -> dict[int, Any]:
    return {
        rank: [TraceStep(step, phases, **idle).as_json() for step in steps]
        for rank, phases in enumerate((first, second))
    }


def test_only_steps_that_both_have_seen_after_the_warm_up_are_compared() -> None:
    # given a probe that has recorded every other step, and a trace that begins in the warm-up
    seen = {rank: dict.fromkeys(range(600, 640, 2), FAST if rank == 0 else SLOW) for rank in (0, 1)}
    told = recording(analyses([RIGHT]), PROFILE, steps=seen)
    # when
    found = judge.judge(find("F6b"), told, traces(FAST, SLOW, range(603, 620)))
    # then: 612, 614, 616 and 618
    assert found.compared_steps == 4
    assert found.phase_gap == pytest.approx(0)
    assert found.probe_share == found.trace_share == pytest.approx(0.4)


def test_the_largest_difference_is_named() -> None:
    # given a trace in which rank 1 spends more in forward
    other = row(forward=40, backward=50, exposed_comm=5, optimizer=5)
    seen = {0: {612: FAST}, 1: {612: SLOW}}
    told = recording(analyses([RIGHT]), PROFILE, steps=seen)
    # when
    found = judge.judge(find("F6b"), told, traces(FAST, other, range(612, 613)))
    # then
    assert found.phase_gap == pytest.approx(0.1)
    assert found.phase_gap_in in ("rank 1 forward", "rank 1 backward")


def test_steps_that_never_meet_are_told() -> None:
    told = recording(analyses([RIGHT]), PROFILE, steps={0: {611: FAST}, 1: {611: SLOW}})
    found = judge.judge(find("F6b"), told, traces(FAST, SLOW, range(612, 614)))
    assert found.problem == "no step is both in the trace and in the recording"


def test_idle_time_comes_from_the_trace_alone() -> None:
    # given
    told = recording(
        analyses([("LAUNCH", "critical", None, "forward")]),
        PROFILE,
        steps={0: {612: FAST}, 1: {612: FAST}},
    )
    idle = {"launch_idle_us": 30.0, "sync_idle_us": 2.0, "h2d_us": 0.0}
    # when
    found = judge.judge(find("F4"), told, traces(FAST, FAST, range(612, 613), **idle))
    # then
    assert found.probe_share is None
    assert found.trace_share == pytest.approx(0.3)


def test_a_probe_that_counts_otherwise_is_told() -> None:
    # given: step 9 ended after the script had seen the device finish ten steps
    ends = {9: SETTLED + 1, 10: SETTLED + 2}
    told = recording(analyses([RIGHT]), ends_ns=ends)
    assert judge.judge(find("F6b"), told, {}).problem is not None
    ends = {9: SETTLED - 1, 10: SETTLED + 2}
    assert judge.judge(find("F6b"), recording(analyses([RIGHT]), ends_ns=ends), {}).problem is None


# -- shares --------------------------------------------------------------------------------------


def share(kind: str, *ranks: Phases, rank: int | None = None, meet: bool = False) -> float | None:
    return judge.share(kind, {index: {0: phases} for index, phases in enumerate(ranks)}, rank, meet)


def test_shares_of_one_step() -> None:
    assert share("COMM", FAST, SLOW) == pytest.approx(0.05)
    assert share("STRAGGLER", FAST, SLOW, rank=1) == pytest.approx(0.40)
    assert share("STRAGGLER", FAST, SLOW) == pytest.approx(0.20)
    assert share("OPTIMIZER", FAST, SLOW) == pytest.approx(0.05)
    assert share("COMPUTE-BOUND", FAST, SLOW) == pytest.approx(0.95)
    assert share("DATA", FAST, SLOW) == 0
    assert share("PERIODIC", FAST, SLOW) is None


def test_a_stall_that_another_ranks_work_hides_does_not_count() -> None:
    # given a rank that waits for data while the other still computes
    late = row(data=10, forward=80, exposed_comm=10)
    busy = row(other=20, forward=80)
    # then
    assert share("DATA", late, busy) == 0
    assert share("DATA", late, row(forward=80, exposed_comm=20)) == pytest.approx(0.1)


def test_ranks_that_wait_in_forward_for_buffers_are_seen_through() -> None:
    # given rank 0 late by 40 before forward, for which rank 1 waits there
    late = row(data=40, forward=30, backward=20, exposed_comm=10)
    waits = row(forward=70, backward=20, exposed_comm=10)
    # then
    assert share("STRAGGLER", late, waits, rank=0, meet=True) == pytest.approx(0.4)
    assert share("STRAGGLER", late, waits, rank=0) == 0


# -- the report ----------------------------------------------------------------------------------


def test_the_report_counts_what_was_told_for_what() -> None:
    # given
    rows = [judged(RIGHT), judged(COMM, code="F1"), judged(NOTE, code="F0")]
    # when
    text, told = report.as_text(rows), report.as_json(rows, device="a device")
    # then
    assert "| F6b | slow-backward | STRAGGLER | STRAGGLER rank 1, backward | 1.0 s |" in text
    assert "1 of 3 as they should be" in text
    assert told["passed"] == 1
    assert told["device"] == "a device"
    assert told["confusion"] == {
        "STRAGGLER": {"STRAGGLER": 1},
        "DATA": {"COMM": 1},
        "COMPUTE-BOUND": {"DATA": 1},
    }
    assert [fault["passed"] for fault in told["faults"]] == [True, False, False]


@pytest.mark.parametrize(("lag_us", "least"), [(60, True), (4_000, False)])
def test_a_gain_is_the_least_where_the_cause_is_still_there(lag_us: int, least: bool) -> None:
    # given steps of 20 ms without the cause, in which the device does or does not starve still
    told = analyses([("LAUNCH", "critical", None, "backward")])
    lags = dict.fromkeys(range(510, 600), lag_us)
    # when
    found = judge.judge(find("F4"), replace(recording(told, FIXED), lags_us=lags), {})
    # then
    assert found.gain_is_least == least
    assert ("at least" in report.as_text([found]).splitlines()[2]) == least
