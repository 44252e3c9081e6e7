"""Where sessions live, how they are found, and whether one is alive."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from session.made import held_lock, kept, session, write
from torchtop.session.find import find_session
from torchtop.session.locks import is_locked
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    config_home,
    describe,
    home,
    iter_requests,
    list_sessions,
    liveness,
    new_session,
    private_dir,
    read_json,
    request_stop,
    safe_name,
    write_json,
)

pytestmark = pytest.mark.usefixtures("own_home")


# -- homes -----------------------------------------------------------------------------------------


def test_the_home_is_the_one_asked_for_or_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home().name == "home"
    monkeypatch.delenv("TORCHTOP_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert home() == Path("/var/state/torchtop")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ana")
    assert home() == Path("/home/ana/.local/state/torchtop")
    monkeypatch.setenv("TORCHTOP_HOME", "relative")
    assert home() == Path.cwd() / "relative"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHTOP_HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # an id that nobody has

    with pytest.raises(SessionError, match="set TORCHTOP_HOME"):
        home()
    with pytest.raises(SessionError, match="set TORCHTOP_HOME"):
        config_home()
    monkeypatch.setenv("TORCHTOP_HOME", "/somewhere")
    assert config_home() == Path("/somewhere/config")


@pytest.mark.parametrize("where", ["/dev/null/x", "/proc/nowhere/x"])
def test_a_home_that_cannot_be_made_is_one_line(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHTOP_HOME", where)

    with pytest.raises(
        SessionError, match="set TORCHTOP_HOME to a directory you can write"
    ) as told:
        new_session("x")

    assert "\n" not in str(told.value)


def test_a_home_in_which_nothing_can_be_made_is_one_line(own_home: Path) -> None:
    own_home.mkdir()
    (own_home / "sessions").write_text("a file where the folder should be")

    with pytest.raises(SessionError, match=r"cannot make .*sessions"):
        new_session("x")


def test_a_new_session_is_private_and_its_folders_are_there() -> None:
    paths = new_session("Ana's run/../x")

    assert paths.root.parent == home() / "sessions"
    assert time.strftime("%Y%m") in paths.id
    assert "Ana-s-run" in paths.id
    for folder in (home(), paths.root, paths.ranks, paths.logs, paths.stage):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    assert paths.node().requests.is_dir()
    assert [node.root for node in paths.nodes()] == [paths.node().root]


def test_two_sessions_of_one_name_are_two() -> None:
    assert new_session("x").root != new_session("x").root


@pytest.mark.parametrize(
    ("text", "name"),
    [("gpu-01.local", "gpu-01.local"), ("../../etc", "etc"), ("a b\nc", "a-b-c"), ("", "x")],
)
def test_a_piece_of_a_file_name_is_made_from_any_text(text: str, name: str) -> None:
    assert safe_name(text) == name
    assert len(safe_name(text * 100)) <= 40


# -- listing ---------------------------------------------------------------------------------------


def test_a_folder_without_a_description_is_no_session(own_home: Path) -> None:
    kept(own_home, "20260101-000000-a-1111")
    (own_home / "sessions" / "20270101-half").mkdir()

    assert [paths.id for paths in list_sessions()] == ["20260101-000000-a-1111"]


# -- JSON files ------------------------------------------------------------------------------------


def test_a_json_file_is_written_whole_and_privately(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": float("nan"), "b": [Path("p")]})

    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {"a": None, "b": ["p"]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object_reads_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)

    assert read_json(tmp_path / "x.json") is None
    assert read_json(tmp_path / "absent.json") is None


def test_a_session_without_a_description_is_described_by_its_id(tmp_path: Path) -> None:
    assert describe(SessionPaths(tmp_path / "s"))["id"] == "s"


# -- liveness --------------------------------------------------------------------------------------


def test_a_lock_is_seen_while_another_process_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_locked(lock)

    with held_lock(lock):
        assert is_locked(lock)
        assert is_locked(lock)  # asking changes nothing
    assert lock.exists()
    assert not is_locked(lock)


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    with held_lock(tmp_path / "lock") as holder:
        holder.kill()
        holder.wait()

        assert not is_locked(tmp_path / "lock")


def test_a_session_goes_from_starting_over_live_to_ended(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", wall_s=time.time())
    node = paths.node("host-a")
    assert liveness(paths) == "starting"

    with held_lock(node.lock):
        assert liveness(paths) == "live"
        write(node.events, "supervisor", {"kind": "end", "status": "done"})
        assert liveness(paths) == "live"  # until the supervisor itself is gone
    assert liveness(paths) == "ended"


def test_a_session_with_a_summary_has_ended(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", wall_s=time.time() - 3600)
    assert liveness(paths) == "lost"

    write_json(paths.summary, {"status": "failed"})

    assert liveness(paths) == "ended"


@pytest.mark.parametrize("status", ["running", "lost"])
def test_a_summary_that_was_saved_before_an_end_is_no_end(tmp_path: Path, status: str) -> None:
    paths = session(tmp_path / "s", wall_s=time.time() - 3600)
    write_json(paths.summary, {"status": status})
    assert liveness(paths) == "lost"


def test_a_session_that_has_lost_its_description_is_a_session(own_home: Path) -> None:
    paths = session(own_home / "sessions" / "20261130-x")
    paths.meta.unlink()
    assert list_sessions() == []  # one that is being made looks like this
    write(paths.node("host-a").events, "supervisor")

    assert list_sessions() == [find_session("20261130-x")] == [paths]
    assert find_session(str(paths.root)) == paths
    assert "missing or damaged" in describe(paths)["problem"]


def test_a_stop_of_a_session_that_was_deleted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="has been deleted"):
        request_stop(SessionPaths(tmp_path / "gone"), "stop", "a test")


@pytest.mark.fault(29, "a stale lock", "supervisor lost")
def test_a_session_whose_supervisor_was_killed_is_lost(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", wall_s=time.time())
    node = paths.node("host-a")
    write(node.events, "supervisor", {"kind": "exit", "cause": "completed"})

    with held_lock(node.lock) as holder:
        holder.kill()
        holder.wait()

        assert liveness(paths) == "lost"


@pytest.mark.parametrize("wall_s", [None, "soon", time.time() - 60, time.time() + 3600])
def test_a_session_that_never_came_up_is_lost(tmp_path: Path, wall_s: Any) -> None:
    assert liveness(session(tmp_path / "s", wall_s=wall_s)) == "lost"


def test_an_end_record_that_was_torn_is_no_end(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", wall_s=0)
    write(paths.node("host-a").events, "supervisor", {"kind": "process"})
    with paths.node("host-a").events.open("ab") as file:
        file.write(b'{"kind":"en')

    assert liveness(paths) == "lost"


def test_a_session_lives_while_one_of_its_nodes_does(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    write(paths.node("host-a").events, "supervisor", {"kind": "end", "status": "failed"})
    paths.node("host-b").root.mkdir()

    with held_lock(paths.node("host-b").lock):
        assert liveness(paths) == "live"


# -- requests --------------------------------------------------------------------------------------


def test_a_request_reaches_every_node_and_twice_is_once(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    paths.node("host-b").root.mkdir()

    request_stop(paths, "stop", "ana")
    request_stop(paths, "stop", "ana")

    for node in paths.nodes():
        ((file, request),) = iter_requests(node)
        assert request == {"mode": "stop", "requested_by": "ana"}
        assert file.suffix == ".json"


def test_a_request_half_written_is_not_taken(tmp_path: Path) -> None:
    node = session(tmp_path / "s").node("host-a")
    (node.requests / ".stop-1.json.7").write_text('{"mode"')
    (node.requests / "torn-1.json").write_text('{"mode"')

    assert list(iter_requests(node)) == []


def test_a_request_that_cannot_be_left_is_told(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    paths.node("host-a").requests.rmdir()
    paths.node("host-a").requests.write_text("a file")

    with pytest.raises(SessionError, match="cannot ask s to stop"):
        request_stop(paths, "stop", "ana")


def test_a_directory_that_cannot_be_made_is_told_with_what_to_do() -> None:
    with pytest.raises(SessionError, match="cannot make /dev/null/x: Not a directory"):
        private_dir(Path("/dev/null/x"))
