"""``torchtop report`` as it is typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.typed import Typed
from htmlreport.made_sweep import sweep
from session.made_summary import ended

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions" / "comm-heavy"


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    return Typed(tmp_path / "home", tmp_path, monkeypatch, capsys)


def made_sweep(root: Path) -> Path:
    root.mkdir(parents=True)
    (root / "plan.json").write_text("{}")
    (root / "sweep.json").write_text(json.dumps(sweep()))
    return root


def test_a_session_becomes_one_file(typed: Typed, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert typed("report", str(RECORDED)) == (0, "comm-heavy.html\n", "")
    assert "<!DOCTYPE html>" in (tmp_path / "comm-heavy.html").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["comm-heavy.html"]


def test_an_old_report_is_replaced(typed: Typed, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "r.html").write_text("old")
    assert typed("report", str(RECORDED), "-o", "r.html") == (0, "r.html\n", "")
    assert "old" not in (tmp_path / "r.html").read_text()[:20]


@pytest.mark.parametrize("reference", ["20261130-sweep", "home/sweeps/20261130-sweep"])
def test_a_sweep_by_its_id_and_by_its_path(typed: Typed, tmp_path: Path, reference: str) -> None:
    pytest.importorskip("matplotlib")
    made_sweep(tmp_path / "home" / "sweeps" / "20261130-sweep")
    ended(tmp_path / "home" / "sessions" / "one", 8000.0)
    assert typed("report", reference, "-o", "s.html") == (0, "s.html\n", "")
    assert "Sweep of resnet50-cifar10" in (tmp_path / "s.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no sessions"),
        (
            ["nosuch"],
            "no session and no sweep is called nosuch; see: torchtop ls, or",
        ),
        (["no/where"], "not a session directory"),
        (["home/sessions/newer"], "update torchtop"),
        (["home/sweeps/torn"], "cannot be read"),
        ([str(RECORDED), "-o", "."], "is a directory"),
        ([str(RECORDED), "-o", "no/such/x.html"], "cannot write"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str, typed: Typed, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if words and words[0].startswith("home"):
        ended(tmp_path / "home" / "sessions" / "newer", 8000.0, schema=99)
        torn = made_sweep(tmp_path / "home" / "sweeps" / "torn")
        (torn / "sweep.json").write_text("{")
    before = sorted(p.name for p in tmp_path.iterdir())
    status, printed, complaint = typed("report", *words)
    assert (status, printed) == (2, "")
    assert len(complaint.splitlines()) == 1 and told in complaint, complaint
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_without_matplotlib_it_says_what_to_install(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, printed, complaint = typed("report", str(RECORDED))
    assert (status, printed) == (2, "")
    assert "pip install 'torchtop[report]'" in complaint and len(complaint.splitlines()) == 1
