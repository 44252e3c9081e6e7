"""``torchtop export`` as it is typed: where the files go, and what is told when they cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.command import torchtop
from cli.typed import Typed
from session.made import session
from session.made_summary import ended
from torchtop.cli import main

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions" / "comm-heavy"


def test_a_trace_into_the_current_directory(tmp_path: Path) -> None:
    done = torchtop(
        "export", str(RECORDED), "--format", "perfetto", home=tmp_path / "h", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "comm-heavy.trace.json\n"
    assert json.loads((tmp_path / "comm-heavy.trace.json").read_text())["traceEvents"]
    assert [p.name for p in tmp_path.iterdir() if p.name != "h"] == ["comm-heavy.trace.json"]


def test_tables_where_they_were_asked_for(tmp_path: Path) -> None:
    words = ["export", str(RECORDED), "--format", "csv", "-o", "a/b", "--last", "5s"]
    done = torchtop(*words, home=tmp_path / "h", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a/b\n", "")
    assert (tmp_path / "a" / "b" / "steps.csv").read_text().startswith("rank,step,time_s")
    again = torchtop(*words, home=tmp_path / "h", cwd=tmp_path)
    assert again.returncode == 2 and "is there already" in again.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["one"], "--format"),
        (["one", "--format", "xml"], "csv"),
        (["one", "--format", "csv"], "no rank has trained"),
        (["nosuch", "--format", "csv"], "nosuch"),
        (["newer", "--format", "perfetto"], "update torchtop"),
        ([str(RECORDED), "--format", "perfetto", "-o", "."], "is a directory"),
        ([str(RECORDED), "--format", "perfetto", "-o", "no/such/x.json"], "cannot write"),
        ([str(RECORDED), "--format", "csv", "-o", "file/x"], "cannot write"),
        ([str(RECORDED), "--format", "csv", "-o", "file"], "is there already"),
        ([str(RECORDED), "--format", "csv", "--last", "soon"], "30"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "home"
    session(home / "sessions" / "one")
    ended(home / "sessions" / "newer", 8000.0, name="new", schema=99)
    (tmp_path / "file").write_text("")
    before = sorted(p.name for p in tmp_path.iterdir())

    typed = Typed(home, tmp_path, monkeypatch, capsys)
    status, printed, complaint = typed("export", *words)

    assert (status, printed) == (2, "")
    assert len(complaint.splitlines()) == 1, complaint
    assert told in complaint
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_without_tensorboard_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert main(["export", str(RECORDED), "--format", "tensorboard"]) == 2
    told = capsys.readouterr().err
    assert "pip install 'torchtop[tensorboard]'" in told and len(told.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
