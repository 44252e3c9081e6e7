"""Records as they come from clocks, disks and processes that fail: a right or an abstaining
verdict, and never an exception."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from diagnose.cases import CASES, run
from diagnose.play import play
from diagnose.sim_records import DEVICES, SECOND_NS, START_NS, Sampler, Told, records, source_of
from diagnose.simulator import Job, Rank, simulate
from torchtop.diagnose.analyser import Analyser
from torchtop.session.records import encode

Record = dict[str, Any]
Stream = list[tuple[str, Record]]


def full(name: str = "slow backward") -> Stream:
    case = CASES[name]
    sampler = case.sampler or Sampler()
    return list(records(run(name), sampler=sampler, told=case.told or Told(optimizer={"fused": 1})))


def swapped(change: Callable[[str, Record], Record | None]) -> Stream:
    changed = [(source, change(source, record)) for source, record in full()]
    return [(source, record) for source, record in changed if record is not None]


def of_steps(
    change: Callable[[Record], Record], rank: int | None = None
) -> Callable[[str, Record], Record]:
    """Change the ``steps`` records of a rank, or of all."""

    def changed(source: str, record: Record) -> Record:
        meant = record["kind"] == "steps" and (rank is None or source == source_of(rank))
        return change(record) if meant else record

    return changed


def later(record: Record, by_ns: int) -> Record:
    """A record whose clock has jumped."""
    moved = {n: record[n] + by_ns for n in ("mono_ns", "marker_ns", "start_ns") if n in record}
    if record["kind"] == "steps":
        moved["end_ns"] = [at + by_ns for at in record["end_ns"]]
    return record | moved


def jumping(by_ns: int) -> Callable[[str, Record], Record]:
    """The clock of rank 1 jumps in the middle of the run."""

    def jumped(source: str, record: Record) -> Record:
        middle = record["mono_ns"] > START_NS + 4 * SECOND_NS
        return later(record, by_ns) if source == source_of(1) and middle else record

    return jumped


def shuffled(record: Record) -> Record:
    size = len(record["step"])
    order = random.Random(size).sample(range(size), size)
    return {
        name: [values[index] for index in order] if isinstance(values, list) else values
        for name, values in record.items()
    }


def filled(value: Any) -> Callable[[Record], Record]:
    """Every column but the step's number has this value."""

    def changed(record: Record) -> Record:
        size = len(record["step"])
        kept = ("kind", "mono_ns", "stride", "step")
        return {name: v if name in kept else [value] * size for name, v in record.items()}

    return changed


BROKEN: dict[str, Callable[[str, Record], Record | None]] = {
    "a clock jumps ahead": jumping(3600 * SECOND_NS),
    "a clock jumps back": jumping(-3 * SECOND_NS),
    "steps out of order": of_steps(shuffled),
    "steps out of order on one rank": of_steps(shuffled, 1),
    "steps twice": of_steps(
        lambda r: {n: v * 2 if isinstance(v, list) else v for n, v in r.items()}
    ),
    "nothing but zeros": of_steps(filled(0)),
    "nothing but nulls": of_steps(filled(None)),
    "not numbers": of_steps(filled(float("nan"))),
    "infinite": of_steps(filled(float("inf"))),
    "negative": of_steps(filled(-5)),
    "huge": of_steps(filled(2**62)),
    "text": of_steps(filled("many")),
    "columns of other lengths": of_steps(lambda r: r | {"lag_other_us": [1], "host_us": []}),
    "no ends": of_steps(lambda r: {n: v for n, v in r.items() if n != "end_ns"}),
    "no lag of one rank": of_steps(
        lambda r: {n: v for n, v in r.items() if not n.startswith("lag")}, 1
    ),
    "empty records": lambda source, record: record | {"step": []},
    "no header": lambda source, r: None if r["kind"] == "header" else r,
    "no beats": lambda source, r: None if r["kind"] == "beat" else r,
    "no totals": lambda source, r: None if r["kind"] == "totals" else r,
    "no facts": lambda source, r: None if r["kind"] == "facts" else r,
    "odd facts": lambda source, r: (
        r | dict.fromkeys(("workers", "first_batch", "buckets", "gradient_bytes", "fused"), "odd")
        if r["kind"] == "facts"
        else r
    ),
    "an unknown loader": lambda source, r: (
        r | {"workers": None, "prefetch_factor": None, "batches": None}
        if r.get("subject") == "loader"
        else r
    ),
    "a loader without batches": lambda source, r: (
        r | {"batches": 0, "batch_size": None, "first_batch": None}
        if r.get("subject") == "loader"
        else r
    ),
    "no time between steps": of_steps(lambda r: r | {"end_ns": [START_NS] * len(r["step"])}),
    "a wall clock that is an hour off": lambda source, r: (
        r | {"wall_s": r["wall_s"] + 3600, "boot_id": "other", "host": "b"}
        if r["kind"] == "header" and source == source_of(1)
        else r
    ),
    "all clocks jump": lambda source, r: (
        later(r, 7200 * SECOND_NS) if r["mono_ns"] > START_NS + 4 * SECOND_NS else r
    ),
    "an empty batch": lambda source, r: (
        r | {"first_batch": {"bytes": 0, "samples": 0}} if r.get("subject") == "loader" else r
    ),
    "a rank that dies": lambda source, r: (
        None if source == source_of(1) and r["mono_ns"] > START_NS + 4 * SECOND_NS else r
    ),
    "a rank without a file": lambda source, r: None if source == source_of(1) else r,
    "ticks without values": lambda source, r: (
        r | {"gpus": {}, "host": {}} if r["kind"] == "tick" else r
    ),
    "ticks of nonsense": lambda source, r: (
        r | {"gpus": {name: ["x", None] for name in r["gpus"]}, "host": {"cpu_percent": "x"}}
        if r["kind"] == "tick"
        else r
    ),
    "other gpus": lambda source, r: (
        r | {"gpus": [{"uuid": "GPU-x"}]} if source == DEVICES and r["kind"] == "header" else r
    ),
}
RIGHT = ("STRAGGLER", "UNDECIDED", "HUNG")
"""A rank of this run is slow. Where nothing says so any more, nothing is to be said."""


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_told_of_broken_records_is_right_or_nothing(name: str) -> None:
    out = play(swapped(BROKEN[name]))

    for analysis in out.analyses:
        assert analysis["verdict"]["kind"] in RIGHT, analysis["verdict"]
        assert json.loads(encode({"kind": "analysis"} | analysis))
    minute = out.analyser.minute(START_NS + 3600 * SECOND_NS)
    assert minute is None or json.loads(encode({"kind": "minute"} | minute))


@pytest.mark.parametrize("kind", ["pause", "memory", "beat", "probe", "scalars", "totals", "facts"])
@pytest.mark.parametrize("value", [None, "x", -1, float("nan"), [], {}, 2**70])
def test_no_value_of_any_record_raises(kind: str, value: Any) -> None:
    names = (
        *("what", "step", "start_ns", "duration_us", "alloc_retries", "reserved_bytes"),
        *("marker", "marker_ns", "ready", "cost_share", "dropped", "values", "subject", "loader"),
        *("from_step", "to_step", "steps", "host_us", "samples", "workers", "first_batch"),
    )
    stream = full()
    odd = [
        (source_of(0), {"kind": kind, "mono_ns": START_NS + at} | dict.fromkeys(names, value))
        for at in (5, 6, 7)
    ]

    out = play([*stream[:20], *odd, *stream[20:]])

    assert out.verdict["kind"] in RIGHT
    assert json.loads(encode({"kind": "analysis"} | out.last))


def test_a_rank_that_starts_late_is_waited_for() -> None:
    stream = full()
    late = [item for item in stream if item[0] == source_of(1)]
    early = [item for item in stream if item[0] != source_of(1)]

    before, after = play(early), play([*early, *late])

    assert before.verdict["kind"] == "UNDECIDED"
    assert "rank 1" in before.verdict["headline"]
    assert after.told == ("STRAGGLER", 1, "backward")


def test_a_loss_that_is_not_a_number_is_told_as_unknown() -> None:
    told = {"kind": "scalars", "mono_ns": START_NS, "step": 5, "values": {"loss": float("nan")}}

    out = play([*full(), (source_of(0), told)])

    assert out.last["scalars"] == {"loss": None}
    assert out.told == ("STRAGGLER", 1, "backward")


def test_an_analysis_in_no_time_and_back_in_time() -> None:
    stream = full()
    analyser = Analyser()
    for source, record in stream:
        analyser.feed(source, record)
    end_ns = stream[-1][1]["mono_ns"]

    for now_ns in (end_ns, end_ns, end_ns - 5 * SECOND_NS, 0, end_ns):
        assert analyser.analyse(now_ns)["verdict"]["kind"] == "STRAGGLER"


def test_a_run_of_one_step_and_of_none() -> None:
    for steps in (0, 1):
        out = play(records(simulate(Job(ranks=(Rank(),) * 2, steps=max(1, steps)))))
        assert out.verdict["kind"] == "UNDECIDED"
    assert Analyser().minute(START_NS) is None
