"""Steps on a time line: where a recorded step's phases lie on the device's clock and the host's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from torchtop.export.timeline import Step, Timeline
from torchtop.session.records import PHASES, columns

MS = 1000
"""In microseconds, the unit of the columns."""


def record(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"kind": "steps", **columns(rows, names)}


def row(step: int, end_ms: float, last: str, lag_ms: float = 0.0, **phases_ms: float) -> Any:
    """A step that ended at `end_ms` on the host, its device `lag_ms` behind there."""
    told = {phase: round(phases_ms.get(phase, 0) * MS) for phase in PHASES}
    return {
        "step": step,
        "end_ns": round(end_ms * 1e6),
        "host_us": sum(told.values()) + 3,
        **{f"{phase}_us": value for phase, value in told.items()},
        **{f"{phase}_host_us": value for phase, value in told.items()},
        **{f"lag_{phase}_us": 77 * MS for phase in PHASES},
        f"lag_{last}_us": round(lag_ms * MS),
        "samples": 8,
    }


def laid(rows: list[dict[str, Any]], suffix: str = "_us", many: bool = True) -> list[Step]:
    return list(Timeline(suffix, many).add(record(rows)))


def spans(step: Step) -> dict[str, tuple[float, float]]:
    """Each phase that took time: its start and end in milliseconds."""
    return {
        piece.phase: (piece.start_ns / 1e6, (piece.start_ns + piece.length_ns) / 1e6)
        for piece in step.pieces
        if piece.length_ns
    }


def test_a_step_ends_with_its_synchronisation_and_as_late_as_the_device_was_behind() -> None:
    # given two steps of 10 ms, the device 5 and then 7 ms behind the host at their ends
    parts = {"forward": 3.0, "backward": 5.0, "exposed_comm": 1.0, "optimizer": 1.0}
    rows = [
        row(4, 100.0, "exposed_comm", 5.0, **parts),
        row(5, 108.0, "exposed_comm", 7.0, **parts),
    ]
    # when
    first, second = laid(rows)
    # then the optimizer comes first, and they lie end to end on the device's clock
    assert spans(first) == {
        "optimizer": (95.0, 96.0),
        "forward": (96.0, 99.0),
        "backward": (99.0, 104.0),
        "exposed_comm": (104.0, 105.0),
    }
    assert second.start_ns == first.start_ns + first.length_ns == 105_000_000


@pytest.mark.parametrize("many", [True, False])
def test_without_a_synchronisation_it_ends_with_the_optimizer(many: bool) -> None:
    # given a lag that changes from step to step, as the device catches up
    parts = {"data": 1.0, "forward": 3.0, "backward": 5.0, "optimizer": 1.0}
    lags = [2.0, 1.0, 0.5] if many else [2.0] * 3
    ends = [100.0, 111.0, 121.5] if many else [100.0, 110.0, 120.0]
    rows = [row(i, ends[i], "optimizer", lags[i], **parts) for i in range(3)]
    # when
    first = laid(rows, many=many)[0]
    # then
    assert list(spans(first)) == ["data", "forward", "backward", "optimizer"]
    assert spans(first)["optimizer"][1] == 102.0


def test_steps_never_overlap_and_gaps_stay() -> None:
    # given a lag that is uncertain by half a millisecond, and steps that were not recorded
    parts = {"forward": 4.0, "backward": 6.0}
    rows = [
        row(1, 100.0, "exposed_comm", 1.0, **parts),
        row(2, 110.0, "exposed_comm", 0.5, **parts),
        row(3, 120.0, "exposed_comm", 1.2, **parts),
        row(7, 160.0, "exposed_comm", 1.0, **parts),
    ]
    steps = laid(rows)
    for before, after in itertools.pairwise(steps):
        assert after.start_ns >= before.start_ns + before.length_ns
    assert steps[3].start_ns - steps[2].start_ns > 30e6


def test_a_clock_that_drifts_is_set_anew() -> None:
    parts = {"forward": 4.0, "backward": 6.0}
    rows = [row(i, 100.0 + 10.02 * i, "exposed_comm", **parts) for i in range(200)]
    last = laid(rows)[-1]
    assert abs(last.start_ns + last.length_ns - rows[-1]["end_ns"]) <= 1_000_000


def test_the_hosts_steps_end_when_their_marker_was_enqueued() -> None:
    parts = {"forward": 4.0, "backward": 6.0}
    step = laid([row(1, 100.0, "exposed_comm", 5.0, **parts)], "_host_us")[0]
    assert step.start_ns + step.length_ns == 100_000_000
    assert step.length_ns == 10_003_000


def test_what_is_not_known_is_left_out() -> None:
    whole = row(1, 100.0, "exposed_comm", forward=1.0)
    rows = [
        {**whole, "forward_us": None},
        {**whole, "step": 2, "end_ns": "x"},
        {**whole, "step": 3},
    ]
    assert [step.number for step in laid(rows)] == [3]
    assert laid([{**whole, "forward_us": True}]) == []
    assert list(Timeline("_us").add({"kind": "steps"})) == []
    assert list(Timeline("_us").add({"kind": "steps", "step": [1], "end_ns": 5})) == []


def test_an_unknown_lag_puts_the_step_where_the_host_was() -> None:
    whole = row(1, 100.0, "exposed_comm", forward=1.0)
    step = laid([{**whole, "lag_exposed_comm_us": None, "lag_optimizer_us": None}])[0]
    assert step.start_ns + step.length_ns == 100_000_000
