"""Replay of long sessions: the same picture as from all records, from a small part of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bench.long_session import S, long_session
from torchtop.session.follow import NOT_SHOWN, Follower
from torchtop.session.replay import Replay
from torchtop.session.state import SERIES_SECONDS, SessionState, Snapshot
from torchtop.session.tail import SessionTail, Tail

HOURS = 1
MB = 1_000_000


def bytes_read() -> int:
    """What this process has read from files so far."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.partition("rchar: ")[2].split()[0])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("long") / "s"
    long_session(root, HOURS)
    return root


def size_of(session: Path) -> int:
    return sum(file.stat().st_size for file in session.rglob("*.jsonl"))


def test_opening_and_moving_reads_what_the_moment_shows(session: Path) -> None:
    # given a session of which an hour takes more than 60 MB
    assert size_of(session) > 60 * MB * HOURS
    # when it is opened, and shown at its end
    before = bytes_read()
    replay = Replay(session)
    end = replay.at(replay.end_ns)
    # then the last quarter of an hour of charts was read, and of the rest the minutes
    assert bytes_read() - before < 20 * MB
    assert len(end.points) >= SERIES_SECONDS - 3
    assert len(end.minutes) == 60 * HOURS
    assert len(end.ranks) == 8
    # when it goes on by a second, next to nothing is read
    middle = (replay.start_ns + replay.end_ns) // 2
    replay.at(middle)
    before = bytes_read()
    replay.at(middle + S)
    assert bytes_read() - before < 3 * MB


def test_joining_a_long_run_reads_its_end(session: Path) -> None:
    before = bytes_read()
    seen = Follower(session).poll()
    assert bytes_read() - before < 20 * MB
    assert len(seen.minutes) == 60 * HOURS
    assert len(seen.points) > 600
    assert [rank.marker for rank in seen.ranks] == ["BC"] * 8
    assert [rank.loaders[0]["workers"] for rank in seen.ranks] == [4] * 8


def whole(session: Path, now_ns: int) -> Snapshot:
    """The picture of a moment from every record before it."""
    tail = SessionTail(Replay(session).paths, without=NOT_SHOWN)
    state = SessionState(json.loads((session / "session.json").read_text()))
    for source, record in tail.poll():
        if record["mono_ns"] <= now_ns:
            state.apply(source, record)
    return state.snapshot(now_ns)


def test_a_moment_looks_as_if_everything_had_been_read(tmp_path: Path) -> None:
    begin, end = long_session(tmp_path / "s", 0.3, ranks=2)
    replay, chance = Replay(tmp_path / "s"), random.Random(5)
    assert abs(replay.start_ns - begin) < S and abs(replay.end_ns - end) < 2 * S
    moments = [chance.randrange(begin, end) for _ in range(2)]
    for now in [begin, *moments, moments[-1] + S, moments[-1] + 100 * S, end]:
        seen, full = replay.at(min(now, replay.end_ns)), whole(tmp_path / "s", now)
        for name in ("status", "analysis", "minutes", "gpus", "hosts", "ranks", "events"):
            told, wanted = getattr(seen, name), getattr(full, name)
            if name in ("gpus", "hosts", "ranks"):
                told, wanted = [_without_age(x) for x in told], [_without_age(x) for x in wanted]
            assert told == wanted, name
        assert seen.points[-800:] == full.points[-800:]
        assert (
            seen.scalar_series["loss"][-800:] == full.scalar_series["loss"][-800:]
            if (full.points)
            else not seen.points
        )


def _without_age(shown: object) -> dict[str, object]:
    """What is drawn of a GPU, a host or a rank; series as far as both have read them."""
    fields = dict(vars(shown))
    for name in ("age_s", "marker_age_s"):
        fields.pop(name, None)
    series = fields.get("series")
    if isinstance(series, dict):
        fields["series"] = {name: values[-800:] for name, values in series.items()}
    if "cpu_series" in fields:
        fields["cpu_series"] = fields["cpu_series"][-800:]  # type: ignore[index]
    return fields


def test_the_verdicts_of_hours_that_were_not_read_come_from_the_minutes(session: Path) -> None:
    seen = Follower(session).poll().verdict_changes
    # the first minutes are not read from analyses, and neither is what the last ones tell again
    assert [change[1:] for change in seen] == [("DATA", "critical")] or [
        change[1:] for change in seen
    ] == [("DATA", "warn"), ("DATA", "critical")]
    assert [change[0] for change in seen] == sorted(change[0] for change in seen)


def test_bad_lines_in_the_middle_do_not_end_a_replay(tmp_path: Path) -> None:
    # given files with holes, NULs and half a line, also where a search by halves looks
    begin, end = long_session(tmp_path / "s", 0.4, ranks=2)
    for file in (tmp_path / "s").rglob("*.jsonl"):
        data = bytearray(file.read_bytes())
        for start in range(20_000, len(data) - 3000, 60_000):
            data[start : start + 1000] = b"\0" * 1000
        file.write_bytes(bytes(data) + b'{"kind": "torn')
    # when it is shown at any moment
    replay = Replay(tmp_path / "s")
    for now in range(begin, end, (end - begin) // 7):
        assert replay.at(now).now_ns >= min(now, replay.end_ns)
    # then it is shown as far as it goes, with a count
    seen = replay.at(replay.end_ns)
    assert seen.bad_lines > 10 and seen.analysis is not None and len(seen.points) > 500


def test_a_tail_that_begins_in_the_middle_gives_the_rest(session: Path) -> None:
    file = session / "analysis.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    offset = sum(map(len, lines[:1000]))
    assert [r["seq"] for r in Tail(file, offset=offset).poll(limit=50_000)][:1] == [
        json.loads(lines[1000])["seq"]
    ]
