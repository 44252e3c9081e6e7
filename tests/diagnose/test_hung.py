"""Ranks that stand still: a hang, a long pause, a death, or the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from diagnose.play import Played, play
from diagnose.sim_records import DEVICES, SECOND_NS, Sampler, records, source_of
from diagnose.simulator import Job, Rank, simulate

JOB = Job(ranks=(Rank(),) * 3, steps=200)
Stream = list[tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def stream() -> Stream:
    return list(records(simulate(JOB), sampler=Sampler()))


def after(
    stream: Stream,
    seconds: int,
    markers: dict[int, str],
    silent: tuple[int, ...] = (),
    gone: tuple[int, ...] = (),
    more: Stream | None = None,
) -> Played:
    """The run, and then so many seconds in which no rank passes a marker.

    Args:
        stream: the run.
        seconds: for how long.
        markers: the last marker of each rank.
        silent: ranks that write no more.
        gone: ranks whose process has ended.
        more: further records.
    """
    end_ns = stream[-1][1]["mono_ns"]

    def still() -> Iterator[tuple[str, dict[str, Any]]]:
        for second in range(seconds):
            now = end_ns + second * SECOND_NS
            for rank, marker in markers.items():
                if rank not in silent or second == 0:
                    beat = {"kind": "beat", "mono_ns": now, "marker": marker}
                    # the next step begins with its batch
                    step = 199 if marker in ("B1", "O0", "O1") else 200
                    yield source_of(rank), beat | {"marker_ns": end_ns, "step": step, "ready": 8}
            if second % 5 == 0:
                there = [r for r in markers if r not in gone]
                ranks = [{"rank": rank, "process_pid": 100 + rank} for rank in there]
                yield DEVICES, {"kind": "processes", "mono_ns": now, "gpus": [], "ranks": ranks}

    return play([*stream, *(more or []), *still()])


BACKWARD = dict.fromkeys(range(3), "BC")


def test_ranks_that_stand_still_hang_within_ten_seconds(stream: Stream) -> None:
    assert after(stream, 7, BACKWARD).verdict["kind"] == "COMPUTE-BOUND"
    assert after(stream, 9, BACKWARD).verdict["kind"] == "HUNG"

    verdict = after(stream, 15, BACKWARD).verdict

    assert (verdict["kind"], verdict["severity"]) == ("HUNG", "critical")
    assert verdict["headline"].startswith("All 3 ranks hang: last seen in communication 1")
    assert (verdict["rank"], verdict["phase"]) == (None, None)
    assert verdict["advice"][0].startswith("torchtop stacks")


def test_the_rank_that_is_somewhere_else_is_named(stream: Stream) -> None:
    verdict = after(stream, 15, BACKWARD | {2: "D1"}).verdict

    assert (verdict["kind"], verdict["rank"], verdict["phase"]) == ("HUNG", 2, "forward")
    assert verdict["headline"] == "Rank 2 hangs: last seen in forward 14 s ago; the others wait"
    assert verdict["evidence"] == [
        "rank 2 was last seen in forward, 14 s ago, in step 200",
        "rank 0 waits, last seen waiting for gradient communication, 14 s ago, in step 200",
        "rank 1 waits, last seen waiting for gradient communication, 14 s ago, in step 200",
    ]
    assert "collective that not all ranks call" in verdict["advice"][1]


def test_a_rank_between_two_steps_may_be_saving(stream: Stream) -> None:
    early, late = after(stream, 15, BACKWARD | {0: "O1"}), after(stream, 45, BACKWARD | {0: "O1"})

    assert (early.verdict["kind"], early.verdict["severity"]) == ("HUNG", "warn")
    assert "a long checkpoint would look the same so far" in early.verdict["evidence"]
    assert (late.verdict["kind"], late.verdict["severity"]) == ("HUNG", "critical")


def test_a_run_that_is_known_to_pause_is_given_the_time(stream: Stream) -> None:
    # given a run that has once saved for 20 s
    start_ns = stream[-1][1]["mono_ns"] - SECOND_NS
    times = {"step": 150, "start_ns": start_ns, "duration_us": 20_000_000}
    pause = {"kind": "pause", "mono_ns": start_ns, "what": "save"} | times
    saved: Stream = [(source_of(0), pause)]

    assert after(stream, 35, BACKWARD, more=saved).verdict["kind"] == "COMPUTE-BOUND"
    assert after(stream, 45, BACKWARD, more=saved).verdict["kind"] == "HUNG"


@pytest.mark.parametrize(
    ("markers", "behind", "headline"),
    [
        # a rank that left its loop, or calls something that the others do not
        ({0: "BC", 1: "O1", 2: "BC"}, {1}, "Rank 1 hangs: last seen between steps"),
        # hosts that ran ahead until they needed a result
        ({0: "O1", 1: "O1", 2: "B0"}, {0, 1}, "Ranks 0 and 1 hang: last seen between steps"),
        ({0: "B0", 1: "BC", 2: "BC"}, {0}, "Rank 0 hangs: last seen in backward"),
        ({0: "D0", 1: "BC", 2: "BC"}, {0}, "Rank 0 hangs: last seen waiting for data"),
        ({0: "E1", 1: "BC", 2: "BC"}, {0}, "Rank 0 hangs: last seen evaluating"),
        # hosts that are held up at any kernel, because their devices wait for a network
        ({0: "D1", 1: "B0", 2: "D1"}, {0, 1, 2}, "All 3 ranks hang: last seen"),
        ({0: "O0", 1: "O0", 2: "O1"}, {0, 1, 2}, "All 3 ranks hang: last seen"),
    ],
)
def test_the_ranks_that_have_got_least_far_hang_and_the_others_wait(
    stream: Stream, markers: dict[int, str], behind: set[int], headline: str
) -> None:
    verdict = after(stream, 45, markers).verdict

    assert (verdict["kind"], verdict["severity"]) == ("HUNG", "critical")
    assert verdict["rank"] == (min(behind) if len(behind) == 1 else None)
    assert verdict["headline"].startswith(f"{headline} 44 s ago")
    assert {text[5] for text in verdict["evidence"] if " waits, " in text} == {
        str(rank) for rank in {0, 1, 2} - behind
    }


def test_ranks_whose_steps_are_not_known_are_not_blamed(stream: Stream) -> None:
    end_ns = stream[-1][1]["mono_ns"]
    beats = [
        (source_of(rank), {"kind": "beat", "mono_ns": now, "marker": marker, "marker_ns": end_ns})
        for now in range(end_ns, end_ns + 15 * SECOND_NS, SECOND_NS)
        for rank, marker in enumerate(("BC", "D1", "BC"))
    ]

    verdict = play([*stream, *beats]).verdict

    assert (verdict["kind"], verdict["rank"]) == ("HUNG", None)


def test_of_two_ranks_the_one_that_the_other_waits_for_is_named() -> None:
    short = Job(ranks=(Rank(),) * 2, steps=200)
    stream = list(records(simulate(short), sampler=Sampler()))

    verdict = after(stream, 15, {0: "BC", 1: "B0"}).verdict
    both = after(stream, 15, {0: "BC", 1: "BC"}).verdict

    assert verdict["headline"] == "Rank 1 hangs: last seen in backward 14 s ago; the other waits"
    assert verdict["rank"] == 1
    assert both["headline"] == "Both ranks hang: last seen in communication 14 s ago"


def test_on_a_cpu_a_rank_in_backward_may_wait_for_one_in_forward() -> None:
    # given hosts without a queue, of which most steps do not tell when they wait for gradients
    short = Job(ranks=(Rank(),) * 2, steps=200, cuda=False)
    stream = list(records(simulate(short), sampler=Sampler()))

    verdict = after(stream, 15, {0: "B0", 1: "D1"}).verdict

    assert (verdict["rank"], verdict["phase"]) == (1, "forward")
    assert " waits, last seen in backward" in verdict["evidence"][1]


def test_a_rank_alone_hangs_without_others() -> None:
    stream = list(records(simulate(Job(ranks=(Rank(),), steps=200)), sampler=Sampler()))

    verdict = after(stream, 15, {0: "B0"}).verdict

    assert verdict["headline"] == "The run hangs: last seen in backward 14 s ago"


def test_a_rank_that_writes_no_more_is_told_as_silent(stream: Stream) -> None:
    verdict = after(stream, 20, BACKWARD, silent=(1,)).verdict

    assert (verdict["kind"], verdict["cause"], verdict["rank"]) == ("HUNG", "silent", 1)
    assert verdict["headline"].startswith("Rank 1 is silent: last seen in communication ")
    assert any(
        "rank 1 was last seen" in text and text.endswith("it writes nothing any more")
        for text in verdict["evidence"]
    )


def test_a_rank_that_has_died_is_told_as_gone(stream: Stream) -> None:
    verdict = after(stream, 20, BACKWARD, silent=(1,), gone=(1,)).verdict

    assert verdict["kind"] == "HUNG"
    assert any(text.endswith("its process is gone") for text in verdict["evidence"])
    assert verdict["headline"].startswith("Rank 1 is gone: last seen in communication ")


def test_ranks_that_are_all_silent_hang_as_long_as_their_processes_live(stream: Stream) -> None:
    everyone = (0, 1, 2)

    assert after(stream, 20, BACKWARD, silent=everyone).verdict["kind"] == "HUNG"
    ended = after(stream, 20, BACKWARD, silent=everyone, gone=everyone)
    assert ended.verdict["kind"] == "COMPUTE-BOUND"


def test_one_rank_that_moves_is_no_hang(stream: Stream) -> None:
    end_ns = stream[-1][1]["mono_ns"]
    beat = {"kind": "beat", "marker": "E1", "step": 200, "ready": 8}
    moves = [
        (source_of(0), beat | {"mono_ns": at, "marker_ns": at})
        for at in range(end_ns, end_ns + 20 * SECOND_NS, SECOND_NS)
    ]

    out = play([*stream, *moves])

    assert out.verdict["kind"] == "COMPUTE-BOUND"


def test_compiling_in_the_first_steps_is_no_hang() -> None:
    short = list(records(simulate(Job(ranks=(Rank(),) * 3, steps=4)), sampler=Sampler()))

    assert after(short, 60, BACKWARD).verdict["kind"] == "UNDECIDED"
    assert after(short, 150, BACKWARD).verdict["kind"] == "HUNG"


def test_steps_of_many_seconds_are_no_hang() -> None:
    # given steps of 2 s
    slow = Rank(forward_us=10_000, backward_us=10_000)
    stream = list(records(simulate(Job(ranks=(slow,) * 3, steps=40)), sampler=Sampler()))

    assert after(stream, 30, BACKWARD).verdict["kind"] == "COMPUTE-BOUND"
    assert after(stream, 60, BACKWARD).verdict["kind"] == "HUNG"


def exits(stream: Stream, codes: dict[int, int], told_by: str = "process") -> Stream:
    """That the scripts of these ranks have ended, or their processes."""
    now = {"mono_ns": stream[-1][1]["mono_ns"]}
    if told_by == "process":
        files = {rank: source_of(rank).replace(".jsonl", ".process.jsonl") for rank in codes}
        return [(files[r], now | {"kind": "exit", "code": code}) for r, code in codes.items()]
    event = now | {"kind": "rank_exit", "signal": None}
    ended = [event | {"rank": r, "process_pid": 100 + r, "code": c} for r, c in codes.items()]
    return [("nodes/host/events.jsonl", record) for record in ended]


@pytest.mark.parametrize("told_by", ["process", "supervisor"])
@pytest.mark.parametrize("code", [0, 1])
def test_ranks_whose_scripts_have_all_ended_do_not_hang(
    stream: Stream, told_by: str, code: int
) -> None:
    # given interpreters that take long to end, while the probe writes on
    ended = exits(stream, dict.fromkeys(range(3), code), told_by)

    assert after(stream, 20, BACKWARD, more=ended).verdict["kind"] == "COMPUTE-BOUND"
    assert after(stream, 60, BACKWARD, more=ended).verdict["kind"] == "COMPUTE-BOUND"


def test_a_rank_that_left_its_loop_early_is_told_while_the_others_wait(stream: Stream) -> None:
    # given one whose script has ended, and whose process stays
    ended = exits(stream, {2: 0})

    verdict = after(stream, 15, BACKWARD | {2: "O1"}, more=ended).verdict

    assert (verdict["kind"], verdict["severity"], verdict["rank"]) == ("HUNG", "critical", 2)
    assert verdict["headline"].startswith("Rank 2 ended: last seen between steps 14 s ago")
    assert verdict["headline"].endswith("; the others wait")
    assert verdict["evidence"][0].endswith("; its script has ended")


def test_a_rank_that_failed_is_told_however_far_it_had_got(stream: Stream) -> None:
    verdict = after(stream, 15, BACKWARD, more=exits(stream, {1: 1})).verdict

    assert (verdict["kind"], verdict["rank"]) == ("HUNG", 1)
    assert verdict["evidence"][0].endswith("; its script has ended with an error")


def test_the_last_rank_to_finish_is_given_time_to_save(stream: Stream) -> None:
    # given a first rank that saves or evaluates when the others have ended
    ended, markers = exits(stream, {1: 0, 2: 0}), {0: "DX", 1: "DX", 2: "DX"}

    late = after(stream, 45, markers, more=ended).verdict

    assert after(stream, 20, markers, more=ended).verdict["kind"] == "COMPUTE-BOUND"
    assert late["headline"] == "Rank 0 hangs: last seen between two epochs 44 s ago"


def test_a_restarted_rank_has_not_ended(stream: Stream) -> None:
    # given an end of the process that this one has taken the place of
    (source, record), *_ = exits(stream, {0: 0})
    begins = (source, record | {"kind": "header"})
    ended = [(source, record), begins, *exits(stream, {1: 0, 2: 0})]

    assert after(stream, 45, BACKWARD, more=ended).verdict["kind"] == "HUNG"


def test_a_hang_before_the_first_verdict_is_a_verdict() -> None:
    # given a rank that stops when too few steps are measured for any other
    short = list(records(simulate(Job(ranks=(Rank(),) * 2, steps=20)), sampler=Sampler()))

    out = after(short, 30, {0: "BC", 1: "D1"})

    assert (out.verdict["kind"], out.verdict["severity"]) == ("HUNG", "critical")
    assert not out.last["warming_up"]
    minute = out.analyser.minute(short[-1][1]["mono_ns"] + 31 * SECOND_NS)
    assert minute is not None
    longest = max(minute["verdicts"], key=lambda verdict: float(verdict["seconds"]))
    assert (longest["kind"], longest["rank"]) == ("HUNG", 1)
    assert longest["seconds"] > 15


@pytest.mark.parametrize("seconds", [20, 45])
def test_a_run_that_hung_to_its_end_keeps_the_verdict(seconds: int) -> None:
    # given a hang before any other verdict, that the user has stopped
    short = list(records(simulate(Job(ranks=(Rank(),) * 2, steps=20)), sampler=Sampler()))
    out = after(short, seconds, {0: "BC", 1: "D1"})
    end_ns = short[-1][1]["mono_ns"] + seconds * SECOND_NS
    for source, record in exits(short, {0: -15, 1: -15}, "supervisor"):
        out.analyser.feed(source, record | {"mono_ns": end_ns})

    last = out.analyser.analyse(end_ns + SECOND_NS)

    assert (last["verdict"]["kind"], last["verdict"]["rank"]) == ("HUNG", 1)
    assert not last["warming_up"]
