"""Reading files while they grow, tear and vanish."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from session.made import session, write
from torchtop.session.records import SCHEMA, Appender
from torchtop.session.tail import SessionTail, Tail


def line(kind: str = "beat", **fields: Any) -> bytes:
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.jsonl"


def kinds(tail: Tail) -> list[str]:
    return [record["kind"] for record in tail.poll()]


def test_a_line_counts_once_it_is_ended(path: Path) -> None:
    tail = Tail(path)
    assert kinds(tail) == []  # absent

    append(path, line("one") + b'{"kind":"tw')
    assert kinds(tail) == ["one"]
    assert kinds(tail) == []

    append(path, b'o"}')
    assert kinds(tail) == []
    append(path, b"\n" + line("three"))
    assert kinds(tail) == ["two", "three"]
    assert tail.bad == 0


@pytest.mark.parametrize(
    "spoilt",
    [
        b"not json",
        b'{"kind":"torn","a":1{"kind":"next"}',
        b'["kind"]',
        b"7",
        b'{"step":1}',
        b'{"kind":3}',
        b'{"kind":"x","mono_ns":"soon"}',
        b'{"kind":"x","seq":[]}',
        b"\x00\x00\x00\x00",
        b"\xff\xfe{\x00",
        b"[" * 100_000,
        b'{"kind":"x","n":' + b"9" * 5000 + b"}",
    ],
)
def test_a_spoilt_line_is_counted_and_passed_over(path: Path, spoilt: bytes) -> None:
    append(path, line("before") + spoilt + b"\n" + line("after"))

    tail = Tail(path)

    assert kinds(tail) == ["before", "after"]
    assert tail.bad == 1


def test_blank_lines_are_no_fault(path: Path) -> None:
    append(path, b"\n" + line("a") + b"  \n\n" + line("b"))

    tail = Tail(path)

    assert kinds(tail) == ["a", "b"]
    assert tail.bad == 0


def test_a_tail_of_zeros_waits_and_then_costs_one_line(path: Path) -> None:
    append(path, line("a") + b"\x00" * 4096)
    tail = Tail(path)
    assert kinds(tail) == ["a"]
    assert tail.bad == 0

    append(path, line("lost") + line("b"))
    assert kinds(tail) == ["b"]
    assert tail.bad == 1


def test_what_json_lacks_is_missing(path: Path) -> None:
    append(path, b'{"kind":"x","a":NaN,"b":-Infinity}\n')

    assert Tail(path).poll() == [{"kind": "x", "a": None, "b": None}]


def test_a_line_of_nine_megabytes_is_dropped_while_it_streams_by(path: Path) -> None:
    append(path, line("a") + b'{"kind":"huge","text":"' + b"x" * (9 << 20) + b'"}\n' + line("b"))

    tail = Tail(path)

    assert kinds(tail) == ["a", "b"]
    assert tail.bad == 1


def test_a_line_of_a_few_megabytes_is_a_record(path: Path) -> None:
    append(path, line("big", text="x" * (3 << 20)))

    assert [len(record["text"]) for record in Tail(path).poll()] == [3 << 20]


def test_a_limit_bounds_what_is_read_at_once(path: Path) -> None:
    append(path, line("first") + b"".join(line(text="x" * 1000) for _ in range(4000)))
    tail = Tail(path)

    taken = len(tail.poll(limit=1))
    assert 0 < taken < 2000
    while more := tail.poll(limit=1):
        taken += len(more)
    assert taken == 4001


def test_a_file_that_vanishes_yields_nothing(path: Path) -> None:
    append(path, line("a"))
    tail = Tail(path)
    assert kinds(tail) == ["a"]

    path.unlink()

    assert kinds(tail) == []
    assert tail.bad == 0


def test_a_truncated_file_gives_no_record_twice(path: Path) -> None:
    append(path, line("a") + line("b"))
    tail = Tail(path)
    assert kinds(tail) == ["a", "b"]

    path.write_bytes(line("a"))

    assert kinds(tail) == []


def test_a_long_file_can_be_joined_near_its_end(path: Path) -> None:
    rows = [line("row", step=step, text="x" * 100) for step in range(5000)]
    append(path, line("header", schema=SCHEMA) + line("facts", subject="loader") + b"".join(rows))

    tail = Tail(path, last_bytes=20_000)
    records = tail.poll()

    assert [r["kind"] for r in records[:2]] == ["header", "facts"]
    steps = [r["step"] for r in records if r["kind"] == "row"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 4999
    assert steps[-100:] == list(range(4900, 5000))
    assert len(steps) < 1000  # the head and the last part alone
    append(path, line("row", step=5000))
    assert [r["step"] for r in tail.poll()] == [5000]


@pytest.mark.parametrize("last_bytes", [1, 50, 199, 10_000])
def test_joining_a_short_file_loses_nothing_but_what_the_cut_falls_in(
    path: Path, last_bytes: int
) -> None:
    lines = [line("header", schema=SCHEMA), *(line("row", step=step) for step in range(10))]
    append(path, b"".join(lines))

    records = Tail(path, last_bytes=last_bytes).poll()

    assert records[0]["kind"] == "header"
    assert len(records) >= len(lines) - 1
    assert [r["step"] for r in records[1:]] == sorted({r["step"] for r in records[1:]})


def test_a_file_may_appear_after_it_was_first_asked_for(path: Path) -> None:
    tail = Tail(path, last_bytes=1000)
    assert kinds(tail) == []

    append(path, line("header", schema=SCHEMA) + line("a"))

    assert kinds(tail) == ["header", "a"]


def test_a_newer_schema_is_noticed(path: Path) -> None:
    append(path, line("header", schema=SCHEMA))
    tail = Tail(path)
    tail.poll()
    assert not tail.newer_schema

    append(path, line("header", schema=SCHEMA + 1))
    tail.poll()

    assert tail.newer_schema


def test_all_files_of_a_session_are_found_as_they_appear(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    write(paths.node("host-a").events, "supervisor", {"kind": "process"})
    tail = SessionTail(paths)
    assert [(s, r["kind"]) for s, r in tail.poll()] == [
        ("nodes/host-a/events.jsonl", "header"),
        ("nodes/host-a/events.jsonl", "process"),
    ]

    write(paths.ranks / "0-0-1.jsonl", "rank", {"kind": "beat"})
    write(paths.analysis, "analyst", {"kind": "analysis"})

    assert [(s, r["kind"]) for s, r in tail.poll()] == [
        ("ranks/0-0-1.jsonl", "header"),
        ("ranks/0-0-1.jsonl", "beat"),
        ("analysis.jsonl", "header"),
        ("analysis.jsonl", "analysis"),
    ]
    assert list(tail.poll()) == []


def test_kinds_can_be_left_out(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    kinds = ("steps", "beat", "steps_of_another_kind", "totals")
    write(paths.ranks / "0-0-1.jsonl", "rank", *({"kind": kind, "step": 1} for kind in kinds))
    tail = SessionTail(paths, without=("steps", "totals"))

    assert [record["kind"] for _, record in tail.poll()] == [
        "header",
        "beat",
        "steps_of_another_kind",
    ]
    assert tail.bad == 0


def test_files_can_be_left_out(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    write(paths.analysis, "analyst")
    write(paths.ranks / "0-0-1.jsonl", "rank")

    found = {source for source, _ in SessionTail(paths, skip=("analysis.jsonl",)).poll()}

    assert found == {"ranks/0-0-1.jsonl"}


def test_a_session_directory_that_vanishes_yields_nothing(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    appender = Appender(paths.ranks / "0-0-1.jsonl", "rank")
    tail = SessionTail(paths)
    assert len(list(tail.poll())) == 1

    shutil.rmtree(paths.root)
    appender.write("beat")  # the writer does not notice

    assert list(tail.poll()) == []
    assert tail.bad == 0


def test_bad_lines_and_schemas_are_summed_over_files(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    append(paths.root / "analysis.jsonl", b"?\n" + line("header", schema=SCHEMA + 1))
    append(paths.ranks / "0-0-1.jsonl", b"?\n?\n")
    tail = SessionTail(paths)

    list(tail.poll())

    assert tail.bad == 3
    assert tail.newer_schema
