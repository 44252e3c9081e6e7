"""Restarts, clocks, runs that stand still, and verdicts that stand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from diagnose.play import Played, play
from diagnose.sim_records import START_NS, records, source_of
from diagnose.simulator import Job, Rank, simulate
from torchtop.diagnose.analyser import Analyser
from torchtop.session.records import PHASES

JOB = Job(ranks=(Rank(),) * 2, steps=200)
Stream = list[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def stream() -> Stream:
    return list(records(simulate(JOB)))


def again(stream: Stream, attempt: int, later_ns: int) -> Iterator[Any]:
    """The records as a later attempt of the same ranks."""
    for source, record in stream:
        rank = int(source.split("/")[1].split("-")[0])
        times = ("mono_ns", "marker_ns")
        moved = record | {name: record[name] + later_ns for name in times if name in record}
        if record["kind"] == "header":
            moved["attempt"] = attempt
        yield source_of(rank, attempt), moved


def test_the_newest_attempt_counts(stream: Stream) -> None:
    # given a run that was restarted, and a straggler of the first attempt writing on
    first = list(records(simulate(JOB.with_rank(1, backward_us=300))))
    second = list(again(stream, 1, 10**11))

    out = play([*first[:-6], *second, *first[-6:]])

    assert out.told == ("COMPUTE-BOUND", None, None)
    assert out.last["step"] == 199


def test_a_restart_warms_up_again(stream: Stream) -> None:
    second = list(again(stream, 1, 10**11))

    out = play([*stream, *second[:12]])

    assert out.last["warming_up"]
    assert out.verdict["kind"] == "UNDECIDED"


def test_ages_of_markers_hold_across_hosts(stream: Stream) -> None:
    # given rank 1 on a host that booted 500 s later
    def moved(record: dict[str, Any]) -> dict[str, Any]:
        early = {
            name: record[name] - 500 * 10**9 for name in ("mono_ns", "marker_ns") if name in record
        }
        other = {"boot_id": "other", "host": "b"} if record["kind"] == "header" else {}
        return record | early | other

    analyser = Analyser()
    for source, record in stream:
        analyser.feed(source, moved(record) if source == source_of(1) else record)

    ages = [r["marker_age_s"] for r in analyser.analyse(stream[-1][1]["mono_ns"])["ranks"]]

    assert ages[0] == pytest.approx(ages[1], abs=0.7)


def test_a_run_that_stands_still_is_told_and_a_run_that_ended_is_not(stream: Stream) -> None:
    def beats(until_s: int) -> Iterator[Any]:
        for second in range(until_s):
            for rank in (0, 1):
                yield (
                    source_of(rank),
                    {
                        "kind": "beat",
                        "mono_ns": end_ns + second * 10**9,
                        "marker": "BC" if rank == 0 else "O1",
                        "marker_ns": end_ns,
                        "step": 200,
                        "ready": 8,
                    },
                )

    end_ns = stream[-1][1]["mono_ns"]

    alive = play([*stream, *beats(60)])
    ended: Played = play(stream)
    after = ended.analyser.analyse(end_ns + 60 * 10**9)

    assert (alive.verdict["kind"], alive.verdict["severity"]) == ("HUNG", "critical")
    assert alive.verdict["headline"].startswith("Rank 0 hangs: last seen in communication 5")
    seen = "rank 0 was last seen waiting for gradient communication"
    assert any(seen in sentence for sentence in alive.verdict["evidence"])
    assert "torchtop stacks" in alive.verdict["advice"][0]
    assert after["verdict"]["kind"] == "COMPUTE-BOUND"


def test_a_probe_that_took_itself_out_is_told(stream: Stream) -> None:
    off = {"kind": "probe", "mono_ns": stream[-1][1]["mono_ns"], "disabled": "no events left"}

    out = play([*stream, (source_of(1), off)])

    assert out.verdict["kind"] == "UNDECIDED"
    assert "rank 1: no events left" in out.verdict["headline"]


def process_of(rank: int, *records: dict[str, Any], attempt: int = 0) -> Stream:
    """What the file of a rank's process has."""
    source = source_of(rank, attempt).replace(".jsonl", ".process.jsonl")
    header = {"kind": "header", "rank": rank, "world_size": 2, "attempt": attempt}
    return [(source, {"mono_ns": START_NS} | record) for record in (header, *records)]


WHY = "AttributeError: partially initialized module 'torch' has no attribute 'autograd' so far"
OUT = {"kind": "probe", "disabled": WHY}


def test_a_rank_whose_probe_never_came_to_a_file_cannot_be_seen(stream: Stream) -> None:
    # given a probe that took itself out before the first backward
    seen = [(source, record) for source, record in stream if source == source_of(0)]

    out = play([*process_of(0), *process_of(1, OUT), *seen])

    verdict = out.verdict
    assert (verdict["kind"], verdict["severity"]) == ("UNDECIDED", "unknown")
    assert verdict["headline"] == "Cannot see rank 1: the probe there took itself out"
    assert verdict["evidence"][0] == f"rank 1: {WHY}"
    assert out.last["probe"]["disabled"] == f"rank 1: {WHY}"
    assert out.last["ranks"][0]["step"] == 199, "the other rank is shown"


def test_a_short_reason_stands_in_the_headline() -> None:
    out = play([*process_of(0, OUT | {"disabled": "no events left"}), *process_of(1, OUT)])

    assert out.verdict["headline"] == "Cannot see ranks 0 and 1: no events left"
    assert out.verdict["evidence"][1] == f"rank 1: {WHY}"


def test_a_probe_that_tells_its_end_in_both_files_is_told_once(stream: Stream) -> None:
    off = {"kind": "probe", "mono_ns": stream[-1][1]["mono_ns"], "disabled": "no events left"}

    out = play([*process_of(1), *stream, *process_of(1, OUT)[1:], (source_of(1), off)])

    assert out.verdict["kind"] == "UNDECIDED"
    assert out.verdict["headline"].startswith("Cannot see rank 1")
    assert out.last["probe"]["disabled"] == "rank 1: no events left"


def test_a_restart_sees_again(stream: Stream) -> None:
    second = list(again(stream, 1, 10**11))

    out = play([*process_of(1, OUT), *process_of(1, attempt=1), *second, *process_of(1, OUT)])

    assert out.told == ("COMPUTE-BOUND", None, None)


def test_the_next_launch_of_a_command_sees_again(stream: Stream) -> None:
    # given a launch that was restarted once, and a next one, whose count begins anew
    first = process_of(1, OUT, attempt=1)
    (source, header), *_ = process_of(1)
    second = [(source.replace("1-0-", "1-0-9"), header | {"launch": "b"})]
    later = [
        (s, r | {"first_attempt": 2} if r["kind"] == "header" else r)
        for s, r in again(stream, 2, 0)
    ]

    out = play([*first, *second, *later])

    assert out.told == ("COMPUTE-BOUND", None, None)


def test_other_records_of_a_process_say_nothing_of_its_probe(stream: Stream) -> None:
    odd = [{"kind": "torch"}, {"kind": "probe", "disabled": None}, {"kind": "exit", "code": 0}]

    out = play([*process_of(1, *odd), *stream])

    assert out.told == ("COMPUTE-BOUND", None, None)
    assert out.analyser.malformed == 0


def test_steps_that_are_no_longer_recorded_are_told(stream: Stream) -> None:
    # given ranks that move on, such as by replaying a CUDA graph of the whole step
    end_ns = stream[-1][1]["mono_ns"]
    beats = [
        (source_of(rank), {"kind": "beat", "mono_ns": now, "marker": "D1", "marker_ns": now})
        for now in range(end_ns, end_ns + 60 * 10**9, 10**9)
        for rank in (0, 1)
    ]

    out = play([*stream, *beats])

    assert out.verdict["kind"] == "UNDECIDED"
    assert "No step has been recorded for 5" in out.verdict["headline"]


def test_a_few_steps_with_unknown_phases_are_left_out(stream: Stream) -> None:
    def patchy(values: list[int]) -> list[int | None]:
        return [None if index % 4 == 0 else value for index, value in enumerate(values)]

    out = play(
        (s, r | {"data_us": patchy(r["data_us"])} if r["kind"] == "steps" else r) for s, r in stream
    )

    assert out.told == ("COMPUTE-BOUND", None, None)
    assert out.last["window"]["recorded"] < 0.8 * out.last["window"]["steps"]


def test_a_long_run_is_counted_in_full_though_little_of_it_is_kept() -> None:
    # given more steps than are kept, and nobody who asks for minutes meanwhile
    analyser = Analyser()
    header = {"kind": "header", "mono_ns": 1, "world_size": 1, "device": {"type": "cpu"}}
    analyser.feed(source_of(0), header)
    for start in range(0, 9000, 100):
        steps = list(range(start, start + 100))
        columns = {f"{phase}_us": [1000] * 100 for phase in PHASES}
        ends = {"end_ns": [step * 7_000_000 for step in steps]}
        analyser.feed(source_of(0), {"kind": "steps", "mono_ns": 1, "step": steps} | columns | ends)

    minute = analyser.minute(10**12)

    assert minute is not None
    assert minute["steps"] == 8990
    assert minute["step_us"] == 8990 * 7000


def shares(shares: list[float]) -> Stream:
    """A CPU run of two ranks whose communication takes these shares, for 20 s each."""
    made: Stream = []
    step = 0
    for share in shares:
        for _ in range(40):
            end_ns = START_NS + (step + 1) * 500_000_000
            row = {f"{phase}_us": [0] for phase in PHASES}
            row["backward_us"] = [round(500_000 * (1 - share))]
            row["exposed_comm_us"] = [500_000 - row["backward_us"][0]]
            for rank in (0, 1):
                header = {"kind": "header", "mono_ns": START_NS, "world_size": 2}
                made += [(source_of(rank), header)] if step == 0 else []
                made.append(
                    (
                        source_of(rank),
                        {"kind": "steps", "mono_ns": end_ns, "step": [step], "end_ns": [end_ns]}
                        | row,
                    )
                )
            step += 1
    return made


def test_a_share_about_ten_percent_does_not_flap() -> None:
    out = play(shares([0.09, 0.11, 0.09, 0.11, 0.09, 0.11, 0.03]))

    told = [(a["verdict"]["kind"], a["verdict"]["severity"]) for a in out.analyses]
    changes = [new for old, new in pairwise(told) if old != new]
    assert changes == [
        ("COMM", "note"),
        ("COMM", "warn"),
        ("COMM", "note"),
        ("COMPUTE-BOUND", "ok"),
    ]


def test_how_long_a_verdict_has_stood(stream: Stream) -> None:
    out = play(stream)

    stood = [a["verdict"]["since_s"] for a in out.analyses if not a["warming_up"]]

    assert stood == sorted(stood)
    assert stood[-1] == pytest.approx(len(stood) - 1, abs=1)
    assert out.verdict["from_step"] < out.verdict["to_step"] == 199
