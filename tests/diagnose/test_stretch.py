"""The same work that takes longer at times: others compute on the same device."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.made import row, window
from torchtop.diagnose.excess import Scale
from torchtop.diagnose.facts import Facts, GpuFacts, RankFacts, Stranger
from torchtop.diagnose.frontier import LOCAL_PHASES, Row, account
from torchtop.diagnose.stretch import stretch
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.verdict import Verdict
from torchtop.diagnose.verdicts import judge
from torchtop.diagnose.window import summarise

OTHER = (Stranger(1422, "python3", 1_111_490_560),)
SHARED = [638, 633, 633, 3157, 3178, 3118, 633, 633, 632, 636, 635, 632, 3187, 632, 637, 633]
"""Optimizer on an H200 that another process computes on as well, microseconds, step by step."""
SHARED_EXPOSED = [456] * 6 + [3001, 2913, 454, 453, 458, 452, 3002, 458, 454, 453]
ALONE = [635, 633, 636, 633, 632, 635, 632, 630, 634, 634, 633, 634, 633, 630, 633, 632]
"""The same without the other process."""
SCALE = Scale.of(54_000, DEFAULT)


def made(optimizers: list[int], exposed: list[int], lag_us: int | None = 200_000) -> list[Row]:
    lags = (lag_us,) * len(LOCAL_PHASES)
    return [
        row(
            20 + number,
            exposed=exposed[number % len(exposed)],
            at_ns=(20 + number) * 500_000_000,
            forward=17_000,
            backward=35_000,
            optimizer=optimizer,
            lag_forward_us=lag_us,
            lag_backward_us=lag_us,
            lag_width_us=1000,
            local_lag_us=lags,
        )
        for number, optimizer in enumerate(optimizers)
    ]


def told(rows: list[Row], strangers: tuple[Stranger, ...], standing: Any = ()) -> Any:
    win = summarise([account([r]) for r in rows], True, DEFAULT)
    gpu = GpuFacts(index=0, util_percent=99.0, strangers=strangers)
    facts = Facts((RankFacts(0, "a", gpu_uuid="GPU-0", gpu=gpu),))
    return judge(win, facts, None, DEFAULT, standing=standing)


def test_work_that_waits_for_the_turns_of_others_is_stretched() -> None:
    known = stretch(made(SHARED, SHARED_EXPOSED), True, SCALE)

    assert known is not None
    assert known.fast_us == pytest.approx(1090, abs=10)
    assert known.factor == pytest.approx(2.1, abs=0.3)  # training took 2.27 times as long


def test_work_of_a_device_that_is_ones_own_is_not() -> None:
    known = stretch(made(ALONE, [453]), True, SCALE)

    assert known is not None
    assert known.factor < 1.01


def test_waiting_for_other_ranks_is_no_work() -> None:
    known = stretch(made(ALONE, SHARED_EXPOSED), False, SCALE)

    assert known is not None
    assert known.factor < 1.01


@pytest.mark.parametrize("lag_us", [None, 60])
def test_a_device_that_waits_for_its_host_does_not_tell(lag_us: int | None) -> None:
    assert stretch(made(SHARED, SHARED_EXPOSED, lag_us), True, SCALE) is None


def test_steps_without_an_optimizer_do_not_count() -> None:
    skipped = [0 if number % 4 == 0 else us for number, us in enumerate(ALONE)]
    known = stretch(made(skipped, [453]), True, SCALE)

    assert known is not None
    assert known.factor < 1.01
    assert stretch(made([0] * 16, [453]), True, SCALE) is None


def test_a_process_that_computes_on_the_gpu_is_why_a_run_is_slow() -> None:
    judged = told(made(SHARED * 2, SHARED_EXPOSED), OTHER)

    verdict: Verdict = judged.verdict
    assert (verdict.kind, verdict.severity, verdict.cause) == (
        "CONTENTION",
        "critical",
        "processes",
    )
    assert verdict.share == pytest.approx(1 - 1 / 2.1, abs=0.07)
    assert verdict.gain_bound == pytest.approx(2.1, abs=0.3)
    assert "python3 (pid 1422)" in verdict.evidence[0]
    assert "1.1 ms at its fastest" in verdict.evidence[1]


def test_a_process_that_only_holds_memory_is_not() -> None:
    judged = told(made(ALONE * 2, [453]), OTHER)

    assert judged.verdict.kind == "COMPUTE-BOUND"
    assert [(f.kind, f.severity) for f in judged.findings] == [("CONTENTION", "note")]


def test_work_that_varies_without_anybody_else_is_no_contention() -> None:
    judged = told(made(SHARED * 2, SHARED_EXPOSED), ())

    assert (judged.verdict.kind, judged.findings) == ("COMPUTE-BOUND", ())


def test_what_stands_is_left_later_than_it_is_entered() -> None:
    # given work that takes 1.2 times as long as at its fastest
    rows = made(([630] * 9 + [2400]) * 3, [450])

    entered = told(rows, OTHER)
    held = told(rows, OTHER, [("CONTENTION", 0)])

    assert (entered.verdict.kind, held.verdict.kind) == ("COMPUTE-BOUND", "CONTENTION")
    assert held.verdict.severity == "warn"


def test_a_cpu_has_no_such_thing() -> None:
    assert window({"optimizer": 600, "forward": 1000}, cuda=False).ranks[0].stretch is None
