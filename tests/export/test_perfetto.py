"""The Chrome trace: strictly of the Trace Event Format, and true to the records."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from app.made_session import CASES, make
from torchtop.export.perfetto import write_trace
from torchtop.export.source import Source
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths
from torchtop.session.records import PHASES
from torchtop.session.tail import Tail

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions"
NAMES = ("resnet50-cifar10", "comm-heavy", "straggler")
METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
FIELDS = {
    "M": {"ph", "name", "pid", "tid", "ts", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"ph", "name", "pid", "tid", "ts", "args"},
}
"""Of each kind of event that is written, its fields as the format's document has them."""


def source(root: Path, last_s: float | None = None) -> Source:
    return Source(load_paths(SessionPaths(root)), last_s)


def trace(root: Path, tmp_path: Path, last_s: float | None = None) -> list[dict[str, Any]]:
    path = tmp_path / "trace.json"
    write_trace(source(root, last_s), path)
    told = json.loads(path.read_text(encoding="ascii"), parse_constant=pytest.fail)
    assert set(told) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert told["displayTimeUnit"] in ("ms", "ns")
    return list(told["traceEvents"])


def number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check(events: list[dict[str, Any]]) -> None:
    """The format's rules."""
    for event in events:
        assert set(event) == FIELDS[event["ph"]], event
        assert isinstance(event["name"], str) and event["name"].isprintable()
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert number(event["ts"]) and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in METADATA
        elif event["ph"] == "C":
            assert event["args"] and all(number(value) for value in event["args"].values())
        else:
            assert number(event["dur"]) and event["dur"] >= 0
    named = {e["pid"] for e in events if e["name"] == "process_name"}
    assert {e["pid"] for e in events} == named
    check_nesting(events)


def check_nesting(events: list[dict[str, Any]]) -> None:
    """On one track a slice lies within another one, or beside it: viewers drop what crosses."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            tracks[event["pid"], event["tid"]].append((start, -end))
    for spans in tracks.values():
        open_: list[int] = []
        for start, end in sorted(spans):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or -end <= open_[-1], "slices cross"
            open_.append(-end)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_session_is_a_valid_trace(name: str, tmp_path: Path) -> None:
    check(trace(RECORDED / name, tmp_path))


def test_phases_sum_to_the_recorded_ones_on_every_rank(tmp_path: Path) -> None:
    events = trace(RECORDED / "straggler", tmp_path)
    for rank in (0, 1):
        (file,) = (RECORDED / "straggler" / "ranks").glob(f"{rank}-0-*[0-9].jsonl")
        steps = [r for r in Tail(file).poll() if r["kind"] == "steps"]
        for phase in PHASES:
            recorded = sum(sum(record[f"{phase}_us"]) for record in steps)
            drawn = sum(
                e["dur"]
                for e in events
                if e["ph"] == "X" and (e["pid"], e["tid"], e["name"]) == (1000 + rank, 1, phase)
            )
            assert drawn == pytest.approx(recorded), phase


def test_ranks_verdicts_and_counters_have_names(tmp_path: Path) -> None:
    events = trace(RECORDED / "straggler", tmp_path)
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names[1] == "job"
    assert names[1000] == "rank 0: NVIDIA H200 on vm"
    assert "GPU 1 NVIDIA H200 on vm" in names.values() and "host vm" in names.values()
    judged = [e for e in events if e["ph"] == "X" and e["cat"] == "verdict"]
    assert {(e["pid"], e["name"]) for e in judged} >= {(1, "STRAGGLER"), (1001, "STRAGGLER")}
    assert any("rank 1" in e["args"]["headline"].lower() for e in judged)
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert {"samples/s", "SM active, %", "power, W", "memory used, GiB", "CPU, %"} <= counters


def test_times_of_ranks_and_devices_are_of_one_clock(tmp_path: Path) -> None:
    # given a session whose GPUs work from the first steps on
    events = trace(RECORDED / "compute-heavy", tmp_path)
    steps = [e for e in events if e["ph"] == "X" and e["cat"] == "step" and e["tid"] == 1]
    begun, ended = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    busy = [e["ts"] for e in events if e["name"] == "SM active, %" and e["args"]["value"] > 50]
    # then they are busy while the ranks step, give or take a sample
    assert begun - 2e6 <= min(busy) and max(busy) <= ended + 2e6
    assert 0 < begun < ended < 120e6


def test_a_value_that_is_not_known_is_no_event(tmp_path: Path) -> None:
    events = trace(RECORDED / "resnet50-cifar10", tmp_path)
    active = [e for e in events if e["name"] == "SM active, %"]
    ticks = [e for e in events if e["name"] == "power, W"]
    assert len(active) == len(ticks) - 2  # of two GPUs the first reading of GPM has no value yet


def test_the_last_seconds_alone(tmp_path: Path) -> None:
    whole = trace(RECORDED / "comm-heavy", tmp_path)
    part = trace(RECORDED / "comm-heavy", tmp_path, last_s=8.0)
    check(part)
    steps = [e for e in part if e["ph"] == "X" and e["cat"] == "step"]
    assert 0 < len(steps) < len([e for e in whole if e["ph"] == "X" and e["cat"] == "step"])
    end = max(e["ts"] for e in steps)
    assert 6e6 < end - min(e["ts"] for e in steps) < 9e6


def test_compressed_where_the_name_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    write_trace(source(RECORDED / "resnet50-cifar10"), path)
    told = json.loads(gzip.decompress(path.read_bytes()))
    assert len(told["traceEvents"]) > 1000


@pytest.mark.parametrize("case", ["hostile", "findings", "cpu", "sixteen"])
def test_made_up_sessions_of_all_kinds_are_valid_traces(case: str, tmp_path: Path) -> None:
    check(trace(make(tmp_path / "s", CASES[case], 20), tmp_path))
