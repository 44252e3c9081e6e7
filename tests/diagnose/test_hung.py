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
                    yield source_of(rank), beat | {"marker_ns": end_ns, "step": 200, "ready": 8}
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
    assert verdict["headline"].startswith("No rank has moved for 1")
    assert "all 3 are waiting for gradient communication" in verdict["headline"]
    assert verdict["advice"][0].startswith("torchtop stacks")


def test_the_rank_that_is_somewhere_else_is_named(stream: Stream) -> None:
    verdict = after(stream, 15, BACKWARD | {2: "D1"}).verdict

    assert (verdict["kind"], verdict["rank"]) == ("HUNG", 2)
    assert "rank 2 is in forward, the others waiting for gradient comm" in verdict["headline"]
    assert verdict["evidence"][0].startswith("rank 2 was last seen in forward, 1")
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


def test_a_rank_that_writes_no_more_is_told_as_silent(stream: Stream) -> None:
    verdict = after(stream, 20, BACKWARD, silent=(1,)).verdict

    assert (verdict["kind"], verdict["cause"]) == ("HUNG", "silent")
    assert any(
        "rank 1 was last seen" in text and text.endswith("it writes nothing any more")
        for text in verdict["evidence"]
    )


def test_a_rank_that_has_died_is_told_as_gone(stream: Stream) -> None:
    verdict = after(stream, 20, BACKWARD, silent=(1,), gone=(1,)).verdict

    assert verdict["kind"] == "HUNG"
    assert any(text.endswith("its process is gone") for text in verdict["evidence"])


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
