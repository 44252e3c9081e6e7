"""How much room there is, and logs that would take all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtop.launch.disk import LOW_BYTES, DiskWatch, level_of
from torchtop.launch.journal import Journal
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Appender
from torchtop.session.room import RESERVE_BYTES
from torchtop.session.tail import Tail
from torchtop.session.thinning import punch


@pytest.mark.parametrize(
    ("free", "before", "level"),
    [
        (LOW_BYTES, "ok", "ok"),
        (LOW_BYTES - 1, "ok", "low"),
        (LOW_BYTES, "low", "low"),
        (LOW_BYTES * 2, "low", "ok"),
        (RESERVE_BYTES - 1, "ok", "full"),
        (RESERVE_BYTES, "full", "full"),
        (RESERVE_BYTES * 2, "full", "low"),
        (LOW_BYTES * 2, "full", "ok"),
    ],
)
def test_a_level_is_left_with_some_to_spare(free: int, before: str, level: str) -> None:
    assert level_of(free, before) == level


def test_the_middle_of_a_log_is_given_back_while_it_is_written(tmp_path: Path) -> None:
    # given a log that is written at an offset of its writer's own, as torchrun's redirection does
    paths = SessionPaths(tmp_path)
    folder = paths.logs / "run" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    log = folder / "stdout.log"
    events = Appender(tmp_path / "events.jsonl", "supervisor")
    watch = DiskWatch(paths, Journal(events), log_bytes=1 << 20)
    with log.open("wb", buffering=0) as out:
        out.write(b"first\n" + b"x" * (4 << 20) + b"\nlast\n")
        if not punch(log, 4096, 8192):
            pytest.skip("this file system cannot give blocks back")
        size = log.stat().st_size
        # when it is looked at
        watch.look()
        # then it takes little, and its beginning and its end are there, and what comes after
        assert log.stat().st_size == size
        assert log.stat().st_blocks * 512 <= 1 << 20
        out.write(b"more\n")
    text = log.read_bytes()
    assert text.startswith(b"first\nxxx") and text.endswith(b"xxx\nlast\nmore\n")
    (told,) = [r for r in Tail(tmp_path / "events.jsonl").poll() if r["kind"] == "log_cut"]
    assert told["file"] == "logs/run/attempt_0/0/stdout.log"
    assert set(text[told["from_byte"] : told["to_byte"]]) == {0}
    # and it is not cut again before it has grown
    watch._next_s = 0.0
    watch.look()
    assert len([r for r in Tail(tmp_path / "events.jsonl").poll() if r["kind"] == "log_cut"]) == 1


def test_records_are_read_on_both_sides_of_the_gap(tmp_path: Path) -> None:
    # given a file of many records
    paths = SessionPaths(tmp_path)
    paths.logs.mkdir()
    events = Appender(tmp_path / "events.jsonl", "supervisor")
    analysis = Appender(paths.analysis, "analyst")
    for number in range(2000):
        analysis.write("analysis", step=number, filler="x" * 1000)
    if not punch(paths.analysis, 1 << 20, (1 << 20) + 4096):
        pytest.skip("this file system cannot give blocks back")
    # when it takes more than it may
    DiskWatch(paths, Journal(events), record_bytes=1 << 20).look()
    analysis.write("analysis", step=2000)
    # then its first and its last records are there, and the gap is one bad line
    tail = Tail(paths.analysis)
    steps = [record["step"] for record in tail.poll()[1:]]
    assert steps[:3] == [0, 1, 2] and steps[-2:] == [1999, 2000]
    assert len(steps) < 1200 and tail.bad == 1
    assert steps == sorted(set(steps))


def test_a_log_of_usual_size_is_left_alone(tmp_path: Path) -> None:
    paths = SessionPaths(tmp_path)
    paths.logs.mkdir()
    (paths.logs / "torchrun.log").write_text("a line\n")
    events = Appender(tmp_path / "events.jsonl", "supervisor")
    DiskWatch(paths, Journal(events)).look()
    assert (paths.logs / "torchrun.log").read_text() == "a line\n"
