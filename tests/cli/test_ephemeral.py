"""``run --ephemeral``: nothing is kept once it was shown."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from cli.command import torchtop
from session.made import held_lock, session, write
from torchtop.cli import main
from torchtop.session.ephemeral import discard, is_ephemeral
from torchtop.session.paths import SessionPaths

SCRIPT = "print('trained')\n"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where temporary directories are made."""
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def test_an_ephemeral_session_is_shown_and_then_gone(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    home = tmp_path / "home"
    done = torchtop(
        "run", "--ephemeral", "--no-tui", "--device", "cpu", "--nproc", "1", "train.py",
        home=home, cwd=tmp_path, TMPDIR=str(scratch),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"({scratch}/torchtop-" in done.stdout
    assert "done" in done.stdout
    assert "summary.md" not in done.stdout  # nothing is told that is not there any more
    assert [p.name for p in scratch.iterdir() if p.name.startswith("torchtop-")] == []
    assert not (home / "sessions").exists() or list((home / "sessions").iterdir()) == []


def test_it_does_not_go_with_detach(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = torchtop(
        "run", "--ephemeral", "--detach", "train.py",
        home=tmp_path / "home", cwd=tmp_path, TMPDIR=str(scratch),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "--detach" in done.stderr
    assert list(scratch.iterdir()) == []


def test_a_start_that_fails_leaves_no_directory(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "train.py").write_text("x = \n")
    done = torchtop(
        "run", "--ephemeral", "--no-tui", "--device", "cpu", "train.py",
        home=tmp_path / "home", cwd=tmp_path, TMPDIR=str(scratch),
    )  # fmt: skip
    assert done.returncode == 1
    assert list(scratch.iterdir()) == []


def test_only_what_was_made_to_be_removed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given sessions that say they are ephemeral: in another place, and under a name of our own
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for folder in (tmp_path / "theirs" / "torchtop-x", tmp_path):
        session = SessionPaths(folder / "torchtop-y" / "s" if folder == tmp_path else folder / "s")
        session.root.mkdir(parents=True)
        session.meta.write_text(json.dumps({"ephemeral": True, "wall_s": 0}))
        session.summary.write_text("{}")
        # then it depends on the place
        assert is_ephemeral(session) == (folder == tmp_path)
        assert discard(session) == (folder == tmp_path)
    assert (tmp_path / "theirs" / "torchtop-x" / "s").exists()
    assert not (tmp_path / "torchtop-y").exists()


def test_one_that_was_never_shown_goes_when_it_has_been_over_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given sessions that nobody has shown: old and young ones, one that runs, and other folders
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))

    def made(name: str, ephemeral: bool = True, age_s: float = 90_000) -> SessionPaths:
        paths = session(tmp_path / name / "s", ephemeral=ephemeral, wall_s=0)
        write(paths.node("host-a").events, "supervisor", {"kind": "end", "status": "done"})
        for file in (paths.meta, paths.node("host-a").events):
            os.utime(file, (time.time() - age_s, time.time() - age_s))
        return paths

    old, young, runs = made("torchtop-a"), made("torchtop-b", age_s=80_000), made("torchtop-c")
    seen, kept, theirs = made("torchtop-d"), made("torchtop-e", ephemeral=False), made("other-f")
    # when the next command looks
    with held_lock(runs.node("host-a").lock), held_lock(seen.viewers):
        assert main(["ls"]) == 0
    # then only what is over, old, unseen and made to be removed is gone
    assert not old.root.parent.exists()
    assert all(paths.root.exists() for paths in (young, runs, seen, kept, theirs))
