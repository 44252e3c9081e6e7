"""The single writer of a file."""

from __future__ import annotations

import json
import math
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchtop.session.records import SCHEMA, Appender, encode, start_ticks
from torchtop.session.tail import Tail


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows past `size`: a full disk, as `os.write` sees it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_begins_with_a_header_that_pairs_the_clocks(tmp_path: Path) -> None:
    Appender(tmp_path / "f.jsonl", "sampler", tick_s=1.0).close()

    (header,) = Tail(tmp_path / "f.jsonl").poll()

    assert header["kind"] == "header"
    assert header["seq"] == 0
    assert header["role"] == "sampler"
    assert header["schema"] == SCHEMA
    assert header["tick_s"] == 1.0
    assert header["pid"] == os.getpid()
    assert header["pid_start_ticks"] == start_ticks(os.getpid())
    assert {"mono_ns", "wall_s", "boot_id", "host"} <= header.keys()
    assert (tmp_path / "f.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    Appender(tmp_path / "f.jsonl", "rank").close()

    with pytest.raises(FileExistsError):
        Appender(tmp_path / "f.jsonl", "rank")


def test_each_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = Appender(tmp_path / "f.jsonl", "rank")
    written: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        written.append(data)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    appender.write("beat", step=1)
    appender.write("beat", step=2, mono_ns=5)

    assert [line.count(b"\n") for line in written] == [1, 1]
    assert [json.loads(line)["seq"] for line in written] == [1, 2]
    assert json.loads(written[1])["mono_ns"] == 5


def test_numbers_that_json_lacks_become_null() -> None:
    record = {"kind": "x", "a": math.nan, "b": [1.5, math.inf, (-math.inf,)], "c": {"d": math.nan}}

    line = encode(record)

    assert json.loads(line, parse_constant=pytest.fail) == {
        "kind": "x",
        "a": None,
        "b": [1.5, None, [None]],
        "c": {"d": None},
    }


def test_any_text_stays_on_its_line_and_strange_objects_become_text() -> None:
    line = encode({"kind": "x", "text": "a\nb\u2028\udcff", "path": Path("p")})

    assert line.count(b"\n") == 1
    assert json.loads(line) == {"kind": "x", "text": "a\nb\u2028\udcff", "path": "p"}


def test_a_record_torn_by_a_full_disk_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    appender = Appender(path, "rank")
    appender.write("first")
    with largest_file(path.stat().st_size + 10):
        with pytest.raises(OSError, match="No space"):
            appender.write("torn", text="x" * 100)
        with pytest.raises(OSError, match="File too large"):
            appender.write("lost")
    # There is room again.
    appender.write("second")
    appender.write("third")

    tail = Tail(path)
    assert [(r["kind"], r["seq"]) for r in tail.poll()] == [
        ("header", 0),
        ("first", 1),
        ("second", 4),
        ("third", 5),
    ]
    assert tail.bad == 1


def test_closing_twice_is_allowed_and_writing_after_it_is_told(tmp_path: Path) -> None:
    appender = Appender(tmp_path / "f.jsonl", "rank")
    appender.close()
    appender.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        appender.write("late")


def test_a_header_that_cannot_be_written_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with largest_file(10), pytest.raises(OSError, match="No space"):
        Appender(tmp_path / "f.jsonl", "rank")

    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_writer_leaves_others_what_the_disk_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a disk with less left than must stay free
    appender = Appender(tmp_path / "a.jsonl", "rank", reserve_bytes=1 << 62)
    # then nothing but the header is written, and what is missing can be counted
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            appender.write("beat")
    monkeypatch.setattr(appender, "_reserve", None)
    appender.write("beat")
    appender.close()
    assert [record["seq"] for record in Tail(tmp_path / "a.jsonl").poll()] == [0, 3]


def test_room_that_was_set_aside_does_not_make_a_file_longer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    appender = Appender(path, "process", room_bytes=1 << 20)
    size = path.stat().st_size
    assert size < 1000
    appender.close()
    assert path.stat().st_size == size
    assert path.stat().st_blocks * 512 < 1 << 20
