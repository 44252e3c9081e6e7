"""The analyst: what it writes, what it survives, and that it comes to the same again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from launch.supervised import wait_until
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.launch import analyst, boot
from torchtop.launch.analyst import analyse_again
from torchtop.session.paths import SessionError, SessionPaths, new_session, write_json
from torchtop.session.records import PHASE_COLUMNS, Appender, encode
from torchtop.session.tail import Tail

SECOND = 1_000_000_000
STEP_US = 100_000


def steps_record(first: int, count: int, start_ns: int) -> dict[str, Any]:
    numbers = list(range(first, first + count))
    columns: dict[str, Any] = {name: [0] * count for name in PHASE_COLUMNS}
    columns["data_us"] = [STEP_US // 2] * count
    columns["forward_us"] = [STEP_US // 2] * count
    ends = [start_ns + (number + 1) * STEP_US * 1000 for number in numbers]
    filled = {
        "data_host_us": 0,
        "lag_forward_us": 0,
        "lag_backward_us": 0,
        "lag_width_us": 0,
        "samples": 8,
        "tokens": None,
    }
    columns.update({name: [value] * count for name, value in filled.items()})
    return {"step": numbers, "end_ns": ends, "host_us": [STEP_US] * count, "stride": 1, **columns}


def write_rank(paths: SessionPaths, start_ns: int, seconds: int) -> None:
    """One rank's file: ten steps of 100 ms a second, half of each waiting for data."""
    out = Appender(
        paths.ranks / "0-0-1.jsonl",
        "rank",
        rank=0,
        local_rank=0,
        world_size=1,
        attempt=0,
        device={"type": "cpu", "index": None, "name": None, "uuid": None},
    )
    for second in range(seconds):
        now = start_ns + (second + 1) * SECOND
        record = steps_record(second * 10, 10, start_ns)
        out.write("steps", mono_ns=now, **record)
        sums = {name: sum(record[name]) for name in (*PHASE_COLUMNS, "host_us", "samples")}
        out.write(
            "totals",
            mono_ns=now,
            from_step=second * 10,
            to_step=second * 10 + 10,
            steps=10,
            phase_steps=10,
            data_host_us=0,
            tokens=None,
            **sums,
        )
    out.close()


@pytest.fixture
def paths(state_home: Path) -> SessionPaths:
    made = new_session("analysed")
    write_json(made.meta, {"id": made.id, "wall_s": 0})
    return made


def first_ns(path: Path) -> int:
    return int(Tail(path).poll()[0]["mono_ns"])


def test_a_session_is_analysed_again_from_its_records_alone(paths: SessionPaths) -> None:
    # given two minutes and a half of records, a bad line among them, and an analysis of before
    paths.analysis.write_text("old\n")
    events = Appender(paths.node().events, "supervisor", session=paths.id)
    events.close()
    start = first_ns(paths.node().events)
    write_rank(paths, start, seconds=150)
    with (paths.ranks / "0-0-1.jsonl").open("a") as file:
        file.write('{"kind":"steps","seq":9,"mono_ns":1,"step":"what?"}\n{"kind":\n')
    # when it is analysed again
    analyse_again(paths)
    # then there is an analysis for each second, a minute for each minute and one for the rest
    analysis = Tail(paths.analysis).poll()
    assert analysis[0]["role"] == "analyst"
    found = [record for record in analysis if record["kind"] == "analysis"]
    assert 149 <= len(found) <= 151
    assert found[-1]["step"] == 1499
    assert found[-1]["phases"]["data"]["share"] == pytest.approx(0.5)
    minutes = [r for r in Tail(paths.history).poll() if r["kind"] == "minute"]
    assert len(minutes) == 3
    counted = sum(minute["steps"] + minute["warmup_steps"] for minute in minutes)
    assert 1490 <= counted <= 1500
    # and nothing half-made is left
    assert {p.name for p in paths.root.iterdir() if p.name.startswith(".")} == set()
    # and once more gives the same
    analyse_again(paths)
    again = [record for record in Tail(paths.analysis).poll() if record["kind"] == "analysis"]
    assert again == found


def test_of_a_long_session_the_last_part_is_analysed_each_second(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a session of four minutes, where two are long
    monkeypatch.setattr(analyst, "_LONG_NS", 120 * SECOND)
    monkeypatch.setattr(analyst, "_WHOLE_NS", 60 * SECOND)
    start = 1000 * SECOND
    write_rank(paths, start, seconds=240)
    file = paths.ranks / "0-0-1.jsonl"
    header, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(encode({**json.loads(header), "mono_ns": start}) + b"".join(rest))
    done: list[float] = []
    # when it is analysed
    analyse_again(paths, done.append)
    # then every ten seconds first, and its minutes are complete
    times = [r["mono_ns"] for r in Tail(paths.analysis).poll() if r["kind"] == "analysis"]
    gaps = [round((b - a) / SECOND) for a, b in pairwise(times)]
    assert set(gaps[:17]) == {10}
    assert 55 <= gaps.count(1) <= 62
    minutes = [r for r in Tail(paths.history).poll() if r["kind"] == "minute"]
    assert sum(m["steps"] + m["warmup_steps"] for m in minutes) == 2400
    assert sum(v["seconds"] for v in minutes[1]["verdicts"]) == pytest.approx(60)
    # and it is told how far it has come
    assert done == sorted(done)
    assert 0 <= done[0] <= done[-1] <= 1


def test_a_time_without_any_record_is_passed_over(paths: SessionPaths) -> None:
    # given a record that a clock of nonsense has stamped, centuries later
    write_rank(paths, 1000 * SECOND, seconds=30)
    with (paths.ranks / "0-0-1.jsonl").open("ab") as file:
        file.write(encode({"kind": "beat", "seq": 99, "mono_ns": 2**62, "marker": "B1"}))
    # when it is analysed
    analyse_again(paths)
    # then not for each second of them
    found = [r for r in Tail(paths.analysis).poll() if r["kind"] == "analysis"]
    assert len(found) < 400
    assert found[-1]["step"] == 299


def test_records_are_merged_by_their_times(paths: SessionPaths) -> None:
    def part(*times: int) -> list[analyst.Timed]:
        return [(time, "a file", {"kind": "beat", "seq": time}) for time in times]

    first = iter([part(1, 2, 2), part(5, 9)])
    second = iter([part(2, 3, 4, 6, 7), part(8)])
    merged = analyst._merged([first, iter([]), second, iter([part(10)])])

    assert [time for time, _, _ in merged] == [1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_a_session_without_records_is_refused(paths: SessionPaths) -> None:
    with pytest.raises(SessionError, match="has no records"):
        analyse_again(paths)


def test_another_hosts_clock_is_brought_onto_the_first_ones(paths: SessionPaths) -> None:
    # given a second node that booted an hour later: its monotonic clock is an hour behind
    events = Appender(paths.node().events, "supervisor", session=paths.id)
    events.close()
    header = Tail(paths.node().events).poll()[0]
    write_json(paths.meta, {"id": paths.id, "host": header["host"]})
    node = paths.node("other")
    node.root.mkdir()
    hour = 3600 * SECOND
    line = {**header, "host": "other", "mono_ns": header["mono_ns"] - hour}
    later = {"kind": "process", "seq": 1, "mono_ns": line["mono_ns"] + 2 * SECOND}
    node.events.write_bytes(encode(line) + encode(later))
    # when it is analysed
    analyse_again(paths)
    # then it is two seconds long, not an hour
    assert len(Tail(paths.analysis).poll()) <= 5


def test_the_process_analyses_each_second_and_finishes_on_sigterm(paths: SessionPaths) -> None:
    # given the analyst at work on a session with records
    events = Appender(paths.node().events, "supervisor", session=paths.id)
    events.close()
    analyst = subprocess.Popen(boot.command("torchtop.launch.analyst", str(paths.root)))
    try:
        wait_until(
            lambda: any(r["kind"] == "analysis" for r in Tail(paths.analysis).poll()),
            "a first analysis",
        )
        # when more records come and it is asked to end at once
        write_rank(paths, first_ns(paths.node().events) - 30 * SECOND, seconds=20)
        os.kill(analyst.pid, signal.SIGTERM)
        assert analyst.wait(timeout=60) == 0
    finally:
        analyst.kill()
        analyst.wait()
    # then its last words know of them
    assert Tail(paths.analysis).poll()[-1]["step"] == 199
    assert Tail(paths.history).poll()[-1]["kind"] == "minute"


def test_a_sessions_own_thresholds_count(tmp_path: Path) -> None:
    # Given a session that was started with a limit of its own, and one with nonsense
    paths = SessionPaths(tmp_path / "own")
    paths.root.mkdir()
    write_json(paths.meta, {"thresholds": {"warmup_steps": 3}})
    other = SessionPaths(tmp_path / "other")
    other.root.mkdir()
    write_json(other.meta, {"thresholds": {"no_such": 3}})

    # Then the first is judged by it, and the second as usual
    assert analyst._limits(paths).warmup_steps == 3
    assert analyst._limits(other) == DEFAULT
