"""Following a session live, and replaying one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from session.made import held_lock, session, write
from torchtop.session.follow import Follower
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Appender
from torchtop.session.replay import Replay

S = 1_000_000_000


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    return session(tmp_path / "s", wall_s=time.time() - 3600)


def test_what_is_appended_shows_at_the_next_poll(paths: SessionPaths) -> None:
    node = paths.node("host-a")
    with held_lock(node.lock):
        events = Appender(node.events, "supervisor")
        follower = Follower(paths.root)
        assert follower.poll().status == "starting"

        analysis = Appender(paths.analysis, "analyst")
        analysis.write("analysis", steps=3, step=3)
        assert follower.poll().status == "running"

        events.write("end", status="done")
        snapshot = follower.poll()
    assert snapshot.status == "done"
    assert snapshot.analysis is not None
    assert snapshot.analysis["steps"] == 3
    assert snapshot.bad_lines == 0


def test_a_session_that_lost_its_supervisor_is_told_so_and_ages_no_more(
    paths: SessionPaths,
) -> None:
    write(paths.node("host-a").events, "supervisor", {"kind": "process", "mono_ns": 5 * S})
    write(paths.analysis, "analyst", {"kind": "analysis", "mono_ns": 5 * S, "steps": 1})

    follower = Follower(paths.root)
    first, second = follower.poll(), follower.poll()

    assert first.status == second.status == "lost"
    assert first.now_ns == second.now_ns


def test_a_session_of_another_boot_has_the_time_of_its_last_record(paths: SessionPaths) -> None:
    far = 10**9 * S  # longer than this host has been up
    paths.node("host-a").events.write_text(
        f'{{"kind":"header","mono_ns":{far},"boot_id":"another"}}\n'
        f'{{"kind":"process","mono_ns":{far + 5 * S}}}\n'
    )

    with held_lock(paths.node("host-a").lock):
        assert Follower(paths.root).poll().now_ns == far + 5 * S


def test_a_directory_that_vanishes_raises_nothing(paths: SessionPaths) -> None:
    write(paths.analysis, "analyst", {"kind": "analysis", "steps": 3})
    follower = Follower(paths.root)
    follower.poll()

    shutil.rmtree(paths.root)

    assert follower.poll().analysis is not None


def test_a_directory_without_a_description_is_an_idle_machine(tmp_path: Path) -> None:
    write(tmp_path / "nodes" / "h" / "devices.jsonl", "sampler", {"kind": "tick"}, gpus=[])

    snapshot = Follower(tmp_path).poll()

    assert snapshot.status == "idle"
    assert snapshot.hosts[0].name == "h"


def test_the_facts_of_a_long_run_are_there_when_it_is_joined_late(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchtop.session.follow._RANK_BYTES", 50_000)
    beats = [{"kind": "beat", "step": n, "marker": "B0", "text": "x" * 200} for n in range(2000)]
    facts = {"kind": "facts", "subject": "loader", "loader": 0, "workers": 4}
    write(paths.ranks / "0-0-1.jsonl", "rank", facts, *beats, rank=0)

    (rank,) = Follower(paths.root).poll().ranks

    assert rank.loaders[0]["workers"] == 4
    assert rank.marker == "B0"


@pytest.fixture
def recorded(paths: SessionPaths) -> SessionPaths:
    node = paths.node("host-a")
    write(
        node.events,
        "supervisor",
        {"kind": "stop", "mono_ns": 2**62 + 40 * S, "mode": "stop"},
        {"kind": "end", "mono_ns": 2**62 + 50 * S, "status": "stopped"},
    )
    write(
        paths.analysis,
        "analyst",
        *({"kind": "analysis", "mono_ns": 2**62 + s * S, "steps": s} for s in range(1, 50)),
    )
    return paths


def test_a_replay_shows_the_session_as_it_looked_at_any_moment(recorded: SessionPaths) -> None:
    replay = Replay(recorded.root)

    def steps(second: float) -> int | None:
        analysis = replay.at(2**62 + int(second * S)).analysis
        return None if analysis is None else int(analysis["steps"])

    assert steps(0.5) is None
    assert steps(10.5) == 10
    assert steps(30) == 30
    assert steps(5) == 5  # back
    assert replay.at(2**62 + 45 * S).status == "stopping"
    assert replay.at(replay.end_ns).status == "stopped"
    assert replay.at(2**62 + 20 * S).status == "running"


def test_the_end_of_a_replay_is_what_a_follower_sees(recorded: SessionPaths) -> None:
    replay = Replay(recorded.root)

    seen, followed = replay.at(replay.end_ns), Follower(recorded.root).poll()

    assert seen.points == followed.points
    assert (seen.status, seen.elapsed_s) == (followed.status, followed.elapsed_s)


def test_an_empty_session_can_be_replayed(paths: SessionPaths) -> None:
    replay = Replay(paths.root)

    assert (replay.start_ns, replay.end_ns) == (0, 0)
    assert replay.at(0).status == "starting"
