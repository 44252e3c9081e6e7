"""The analyser: what it makes of records, however they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from diagnose.play import play
from diagnose.sim_records import START_NS, records, source_of
from diagnose.simulator import Job, Rank, simulate
from torchtop.diagnose.analyser import Analyser
from torchtop.session.records import PHASES, VERDICTS, encode

JOB = Job(ranks=(Rank(),) * 2, steps=200)
Stream = list[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def stream() -> Stream:
    return list(records(simulate(JOB)))


def changed(stream: Stream, kind: str, rank: int | None = None, **fields: Any) -> Iterator[Any]:
    """The records with some fields of one kind replaced."""
    for source, record in stream:
        if record["kind"] == kind and (rank is None or source == source_of(rank)):
            yield source, record | fields
        else:
            yield source, record


def nulled(stream: Stream, column: str, rank: int) -> Iterator[Any]:
    for source, record in stream:
        if record["kind"] == "steps" and source == source_of(rank):
            yield source, record | {column: [None] * len(record["step"])}
        else:
            yield source, record


# ------------------------------------------------------------------------------------- the record
def test_an_analysis_has_every_field_of_the_schema(stream: Stream) -> None:
    out = play(stream).last

    assert set(out) == {
        "step",
        "steps",
        "window",
        "warming_up",
        "step_ms",
        "throughput",
        "phases",
        "ranks",
        "verdict",
        "findings",
        "candidates",
        "recent_step_ms",
        "scalars",
        "progress",
        "own_phases",
        "first_attempt",
        "probe",
    }
    assert set(out["window"]) == {"from_step", "to_step", "steps", "recorded", "seconds"}
    assert set(out["step_ms"]) == {"mean", "p50", "p95", "p99", "max"}
    assert tuple(out["phases"]) == PHASES
    assert [rank["rank"] for rank in out["ranks"]] == [0, 1]
    assert {"phases", "step_ms", "host_step_ms", "wait_ms", "lag_ms", "data_host_ms"} < set(
        out["ranks"][0]
    )
    assert out["verdict"]["kind"] in VERDICTS
    assert (out["step"], out["steps"], out["warming_up"]) == (199, 200, False)


def test_every_analysis_can_be_written(stream: Stream) -> None:
    for analysis in play(stream).analyses:
        assert json.loads(encode({"kind": "analysis"} | analysis))


def test_nothing_is_known_before_the_first_record() -> None:
    out = Analyser().analyse(START_NS)

    assert out["verdict"]["kind"] == "UNDECIDED"
    assert (out["step"], out["steps"], out["window"], out["ranks"]) == (None, 0, None, [])
    assert out["throughput"] == dict.fromkeys(("samples_per_s", "tokens_per_s", "steps_per_s"))


def test_percentiles_and_fresh_steps(stream: Stream) -> None:
    out = play(stream)

    assert out.last["step_ms"]["p50"] == pytest.approx(38.3, abs=0.2)
    assert out.last["step_ms"]["p50"] <= out.last["step_ms"]["p99"] <= out.last["step_ms"]["max"]
    assert sum(len(a["recent_step_ms"]) for a in out.analyses) == 200


def test_throughput_sums_over_ranks(stream: Stream) -> None:
    out = play(stream).last["throughput"]

    assert out["samples_per_s"] == pytest.approx(128 / 0.0383, rel=0.02)
    assert out["steps_per_s"] == pytest.approx(1 / 0.0383, rel=0.02)
    assert out["tokens_per_s"] is None


def test_throughput_is_unknown_where_one_rank_does_not_tell_it(stream: Stream) -> None:
    out = play(changed(stream, "totals", rank=1, samples=None)).last["throughput"]

    assert out["samples_per_s"] is None
    assert out["steps_per_s"] is not None


def test_progress_and_the_time_left(stream: Stream) -> None:
    total = {"kind": "facts", "mono_ns": START_NS, "subject": "script", "total_steps": 300}

    out = play([*stream[:2], (source_of(0), total), *stream[2:]]).last["progress"]

    assert (out["step"], out["total_steps"]) == (199, 300)
    assert out["eta_s"] == pytest.approx(100 * 0.0383, rel=0.05)


def test_scalars_come_from_the_lowest_rank(stream: Stream) -> None:
    told = [
        (
            source_of(rank),
            {"kind": "scalars", "mono_ns": START_NS, "step": 5, "values": {"loss": loss}},
        )
        for rank, loss in ((0, 2.5), (1, 9.0))
    ]

    assert play([*stream, *told]).last["scalars"] == {"loss": 2.5}


def test_the_probes_cost_is_the_worst_ranks(stream: Stream) -> None:
    told = [
        (source_of(rank), {"kind": "probe", "mono_ns": START_NS, "cost_share": cost, "dropped": 1})
        for rank, cost in ((0, 0.001), (1, 0.004))
    ]
    off = (source_of(1), {"kind": "probe", "mono_ns": START_NS, "disabled": "no grad_fn"})

    assert play([*stream, *told]).last["probe"]["cost_share"] == 0.004
    assert play([*stream, *told, off]).last["probe"] == {
        "cost_share": 0.001,
        "dropped": 2,
        "disabled": "rank 1: no grad_fn",
    }


# ------------------------------------------------------------------------------- what is missing
def test_too_few_steps_are_no_verdict() -> None:
    out = play(records(simulate(replace(JOB, steps=25))))

    assert out.last["warming_up"]
    assert out.verdict["kind"] == "UNDECIDED"
    assert out.verdict["severity"] == "unknown"
    assert out.verdict["headline"] == "Measuring: 5 steps and 5 s more until the first verdict"
    assert out.last["step_ms"]["mean"] is not None, "there is something to draw"


def test_a_rank_that_is_missing_is_told(stream: Stream) -> None:
    out = play(item for item in stream if item[0] == source_of(0))

    assert out.verdict["kind"] == "UNDECIDED"
    assert "rank 1" in out.verdict["headline"]
    assert out.last["throughput"]["samples_per_s"] is None


def test_a_rank_that_was_never_in_a_header_can_be_expected(stream: Stream) -> None:
    out = play(stream, analyser=Analyser(world_size=4))

    assert "ranks 2 and 3" in out.verdict["headline"]


def test_lag_that_is_unknown_leaves_a_healthy_run_undecided(stream: Stream) -> None:
    both = nulled(list(nulled(stream, "lag_forward_us", 0)), "lag_backward_us", 0)
    both = nulled(list(nulled(list(both), "lag_forward_us", 1)), "lag_backward_us", 1)

    out = play(both)

    assert out.verdict["kind"] == "UNDECIDED"
    assert "set the pace" in out.verdict["headline"]


def test_a_straggler_without_lag_is_undecided() -> None:
    # given a rank whose backward is slow, by its GPU or by its host
    stream = list(records(simulate(JOB.with_rank(1, backward_us=300))))

    out = play(nulled(stream, "lag_backward_us", 1))

    assert out.verdict["kind"] == "UNDECIDED"
    assert "Rank 1" in out.verdict["headline"]


def test_a_lag_that_is_too_uncertain_is_no_evidence() -> None:
    stream = list(records(simulate(JOB.with_rank(1, backward_us=300))))
    vague = [
        (s, r | {"lag_width_us": [900_000] * len(r["step"])} if r["kind"] == "steps" else r)
        for s, r in stream
    ]

    assert play(vague).verdict["kind"] == "UNDECIDED"


def test_a_phase_that_the_probe_cannot_tell_is_named(stream: Stream) -> None:
    out = play(nulled(stream, "data_us", 0))

    assert out.last["phases"]["data"] == {"ms": None, "share": None}
    assert out.verdict["kind"] == "UNDECIDED"
    assert out.verdict["headline"].endswith("part of the step is: data")


def test_columns_that_are_absent_are_unknown(stream: Stream) -> None:
    bare = ("kind", "mono_ns", "step", "stride", "forward_us", "backward_us")
    cut = [
        (s, {k: v for k, v in r.items() if k in bare} if r["kind"] == "steps" else r)
        for s, r in stream
    ]

    out = play(cut)

    assert out.analyser.malformed == 0
    assert out.last["phases"]["forward"]["ms"] == pytest.approx(12, abs=0.5)
    assert out.last["ranks"][0]["lag_ms"] is None
    assert out.last["ranks"][0]["host_step_ms"] is None


# -------------------------------------------------------------------------------- what is broken
BROKEN: list[tuple[str, Any]] = [
    (source_of(0), {"kind": "steps"}),
    (source_of(0), {"kind": "steps", "step": "many"}),
    (source_of(0), {"kind": "totals", "from_step": None}),
    (source_of(0), {"kind": "totals", "from_step": 1, "to_step": 2, "steps": 1, "host_us": "x"}),
    ("ranks/nonsense.jsonl", {"kind": "header"}),
    (source_of(9), {"kind": "header", "rank": 9, "mono_ns": START_NS}),
    (source_of(0), []),
    (source_of(0), None),
]


def test_malformed_records_are_counted_and_passed_over(stream: Stream) -> None:
    clean = play(stream)

    analyser = Analyser()
    for source, record in [*stream[:2], *BROKEN, *stream[2:]]:
        analyser.feed(source, record)

    assert analyser.malformed == len(BROKEN)
    assert analyser.analyse(START_NS + 10**10)["verdict"]["kind"] == clean.verdict["kind"]


ODD: list[tuple[str, Any]] = [
    (source_of(0), {"kind": "from the future", "mono_ns": START_NS}),
    (source_of(0), {"kind": "steps", "mono_ns": START_NS, "step": []}),
    (source_of(0), {"kind": "beat", "marker_ns": None, "marker": 7, "ready": "full"}),
    (source_of(0), {"kind": "scalars", "mono_ns": START_NS, "values": {"loss": "high"}}),
    (source_of(0), {"kind": "facts", "mono_ns": START_NS, "subject": ["loader"]}),
    (source_of(0), {"kind": "probe", "mono_ns": START_NS, "cost_share": "low"}),
    ("ranks/0-0-100.process.jsonl", {"kind": "header", "mono_ns": START_NS}),
    ("nodes/node/events.jsonl", {"kind": "header", "mono_ns": START_NS}),
    ("nodes/node/devices.jsonl", {"kind": "tick", "mono_ns": START_NS, "gpus": None, "host": 3}),
    ("nodes/node/devices.jsonl", {"kind": "header", "gpus": [None, {"index": "x"}]}),
    ("nodes/node/devices.jsonl", {"kind": "tick", "gpus": {"util_percent": [1, "x", 3]}}),
    ("nodes/node/devices.jsonl", {"kind": "processes", "ranks": {"0": 1}, "gpus": [None]}),
    ("analysis.jsonl", {"kind": "analysis"}),
    ("", {"kind": "header"}),
]


def test_odd_records_change_nothing(stream: Stream) -> None:
    clean = play(stream)

    out = play([*stream[:4], *((s, {"mono_ns": START_NS} | r) for s, r in ODD), *stream[4:]])

    assert out.verdict["kind"] == clean.verdict["kind"]
    assert out.last["phases"] == clean.last["phases"]


def test_non_finite_and_negative_numbers_are_unknown_or_zero(stream: Stream) -> None:
    out = play(
        (s, r | {"data_us": [float("nan")] * len(r["step"])} if r["kind"] == "steps" else r)
        for s, r in stream
    )

    assert out.last["phases"]["data"]["ms"] is None
    assert json.dumps(out.last, allow_nan=False)
