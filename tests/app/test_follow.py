"""The thread that reads sessions, with real directories and a list in place of the app."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.message import Message

from app.made_session import CASES, MadeSession, make
from torchtop.app.follow import SPEEDS, FollowThread
from torchtop.app.messages import Progress, SnapshotReady, Told

LIMIT_S = 10.0


class Posted:
    """What a thread has posted, in order."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Message] = queue.Queue()

    def until(self, wanted: Callable[[Message], object]) -> Message:
        while True:
            message = self.queue.get(timeout=LIMIT_S)
            if wanted(message):
                return message

    def snapshot(self, wanted: Callable[[SnapshotReady], object]) -> SnapshotReady:
        message = self.until(lambda m: isinstance(m, SnapshotReady) and wanted(m))
        assert isinstance(message, SnapshotReady)
        return message


@pytest.fixture
def posted() -> Posted:
    return Posted()


def test_a_growing_session_is_told_as_it_grows(tmp_path: Path, posted: Posted) -> None:
    made = MadeSession(tmp_path / "s", CASES["slow-loader"])
    thread = FollowThread(tmp_path / "s", posted.queue.put, interval_s=0.01)
    thread.start()
    posted.snapshot(lambda m: m.snapshot.status == "starting")
    for _ in range(9):
        made.tick()
    seen = posted.snapshot(lambda m: m.snapshot.verdict)
    assert seen.snapshot.verdict and seen.snapshot.verdict["kind"] == "DATA"
    assert posted.snapshot(lambda m: m.logs.lines).logs.ranks == (0, 1)
    thread.end()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    made.close()


def test_a_directory_that_is_not_there_ends_nothing(tmp_path: Path, posted: Posted) -> None:
    thread = FollowThread(tmp_path / "nowhere", posted.queue.put, interval_s=0.01)
    thread.start()
    assert posted.snapshot(lambda m: True).snapshot.status == "idle"
    thread.end()


def test_an_error_is_told_once_and_the_thread_goes_on(
    tmp_path: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchtop.app import follow

    looks = iter(range(100))

    def look(self: object, passed_s: float) -> object:
        # those of earlier tests may not have ended yet
        if threading.current_thread() is thread and next(looks) < 3:
            raise KeyError("odd record")
        return real(self, passed_s)  # type: ignore[arg-type]

    real = follow.LiveSource.look
    monkeypatch.setattr(follow.LiveSource, "look", look)
    thread = FollowThread(make(tmp_path / "s", CASES["done"], 9), posted.queue.put, interval_s=0.01)
    thread.start()
    told = []

    def note(message: Message) -> bool:
        if isinstance(message, Told):
            told.append(message.text)
        return isinstance(message, SnapshotReady)

    posted.until(note)
    thread.end()
    assert told == ["cannot read the session: KeyError: 'odd record'"]


def test_a_replay_begins_at_the_start_and_seeks(tmp_path: Path, posted: Posted) -> None:
    thread = FollowThread(
        make(tmp_path / "s", CASES["slow-loader"], 60), posted.queue.put, 0.01, replay=True
    )
    thread.start()
    first = posted.snapshot(lambda m: m.replay)
    assert first.replay is not None and first.replay.at_s == 0.0
    thread.seek(30.0)
    later = posted.snapshot(lambda m: m.replay and m.replay.at_s >= 30)
    assert later.snapshot.verdict is not None
    thread.seek(-30.0)
    posted.snapshot(lambda m: m.replay and m.replay.at_s < 30)
    thread.seek(float("inf"))
    end = posted.snapshot(lambda m: m.replay and m.replay.at_s == m.replay.length_s)
    assert end.replay is not None and not end.replay.playing
    thread.end()


def test_a_replay_that_is_paused_stands_still(tmp_path: Path, posted: Posted) -> None:
    thread = FollowThread(
        make(tmp_path / "s", CASES["slow-loader"], 60), posted.queue.put, 0.01, replay=True
    )
    thread.start()
    thread.toggle()
    held = posted.snapshot(lambda m: m.replay and not m.replay.playing).replay
    assert [posted.snapshot(lambda m: True).replay for _ in range(3)] == [held] * 3
    thread.toggle()
    posted.snapshot(lambda m: m.replay and held and m.replay.at_s > held.at_s)
    thread.end()


def test_a_replay_goes_faster_and_slower_within_bounds(tmp_path: Path, posted: Posted) -> None:
    thread = FollowThread(
        make(tmp_path / "s", CASES["slow-loader"], 60), posted.queue.put, 0.01, replay=True
    )
    thread.start()
    thread.change_speed(100)
    fast = posted.snapshot(lambda m: m.replay and m.replay.speed == SPEEDS[-1]).replay
    # 300 times as fast, the end of a minute is a fifth of a second away
    end = posted.snapshot(lambda m: m.replay and not m.replay.playing).replay
    assert fast is not None and end is not None and end.at_s == end.length_s
    thread.change_speed(-1)
    posted.snapshot(lambda m: m.replay and m.replay.speed == SPEEDS[-2])
    thread.seek(float("-inf"))
    thread.change_speed(-100)
    start = posted.snapshot(lambda m: m.replay and m.replay.speed == 1.0).replay
    assert start is not None and start.at_s == 0.0
    thread.end()


def test_only_the_newest_snapshot_of_a_session_waits(tmp_path: Path, posted: Posted) -> None:
    thread = FollowThread(make(tmp_path / "s", CASES["done"], 5), posted.queue.put, 0.01)
    thread.start()
    one, other = posted.snapshot(lambda m: True), posted.snapshot(lambda m: True)
    thread.end()
    assert one.can_replace(other)
    other.source = tmp_path / "another"
    assert not one.can_replace(other)
    assert Progress("a").can_replace(Progress("b"))
