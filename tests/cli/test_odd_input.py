"""Names, numbers and places that nobody would type: one short and clean line, and status 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli.test_damaged_files import RECORDED
from cli.typed import Typed
from torchtop.session.tail import Tail

LONG = "a" * 300
HUGE = "y" * 50_000
DIGITS = "9" * 5_000


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "here").mkdir()
    return Typed(tmp_path / "home", tmp_path / "here", monkeypatch, capsys)


def only_line(told: tuple[int, str, str]) -> str:
    """The line of a command that has refused."""
    status, out, err = told
    assert (status, out) == (2, ""), (status, out[:500], err[:500])
    assert err.endswith("\n") and err[:-1].isprintable() and len(err) < 1600, err[:3000]
    assert "mistake of its own" not in err
    return err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["run", LONG], "there is no workload aaa"),
        (["run", f"{LONG}.py"], "there is no script aaa"),
        (["run", f"/{HUGE}/x.py"], "there is no script /yyy"),
        (["run", "--", f"./{LONG}"], "there is no command ./aaa"),
        (["run", "--python", f"/{LONG}", "compute-heavy"], "aaa"),
        (["run", "--device", "cpu", "compute-heavy", "-o", f"batch={HUGE}"], "batch=yyy"),
        (["run", "--gpus", DIGITS, "compute-heavy"], "whole number"),
        (["run", "--nproc", DIGITS, "compute-heavy"], "whole number"),
        (["run", "--duration", HUGE, "compute-heavy"], "give a time"),
        (["sweep", LONG], "there is no workload aaa"),
        (["sweep", "slow-loader", "--gpus", DIGITS], "give whole numbers"),
        (["sweep", "slow-loader", "--nproc", "\u00b2"], "give whole numbers"),
        (["report", str(RECORDED), "-o", LONG], "File name too long"),
        (["export", str(RECORDED), "--format", "csv", "-o", LONG], "File name too long"),
        (["export", str(RECORDED), "--format", "perfetto", "-o", LONG], "File name too long"),
        (["report", f"x/{LONG}"], "not a session directory"),
        (["rm", "--older-than", f"{DIGITS}d"], "write a number"),
        (["ls", "\x1b[31mX\nY"], "unrecognized arguments: \ufffd[31mX Y"),
        (["ls", HUGE], "unrecognized arguments: yyy"),
        (["\x1b[31m" + HUGE], "there is no command \ufffd[31m"),
        (["show", "--json=\x1b]0;x\x07"], "ignored explicit argument"),
        (["report", f"~nobody-of-{HUGE}/s"], "not a session directory"),
    ],
)
def test_what_cannot_be_is_one_short_clean_line(
    words: list[str], wanted: str, typed: Typed
) -> None:
    assert wanted in only_line(typed(*words))


@pytest.mark.parametrize("words", [["ls"], ["show"], ["sweep", "--list"], ["run", "compute-heavy"]])
@pytest.mark.parametrize("place", ["file", "loop", "long"])
def test_a_state_directory_that_cannot_be_one_is_told(
    words: list[str], place: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / (LONG if place == "long" else place)))
    # when
    told = only_line(typed(*words))
    # then
    assert "set TORCHTOP_HOME to" in told


def test_a_directory_in_place_of_the_configuration_is_told(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "here" / "torchtop.toml").mkdir()
    status, out, err = typed("workloads")
    assert status == 0 and "compute-heavy" in out
    assert len(err.splitlines()) == 1 and "not a regular file: not read" in err


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, str(2**63 + 5), "1e308", "-1e+308"], ids=lambda text: text[:8]
)
def test_a_session_of_absurd_numbers_is_read_as_far_as_it_goes(
    number: str, typed: Typed, tmp_path: Path
) -> None:
    # given: every number of every file is one that nothing can be
    session = tmp_path / "here" / "s"
    shutil.copytree(RECORDED, session)
    for file in session.rglob("*.json*"):
        made = [
            json.dumps(_all(json.loads(line), "@@")).replace('"@@"', number)
            for line in (file.read_text().splitlines() if file.suffix == ".jsonl" else [])
        ] or [json.dumps(_all(json.loads(file.read_text()), "@@")).replace('"@@"', number)]
        file.write_text("\n".join(made) + "\n")
    for words in (
        ("show", "./s"),
        ("analyse", "./s"),
        ("export", "./s", "--format", "perfetto", "-o", "t.json"),
        ("export", "./s", "--format", "csv", "-o", "c"),
        ("report", "./s", "-o", "r.html"),
        ("compare", "./s", str(RECORDED)),
    ):
        # when
        status, _, err = typed(*words)
        # then
        assert status in (0, 2), (words, err)
        assert "mistake of its own" not in err and len(err.splitlines()) <= 1, (words, err)


def _all(value: object, instead: object) -> object:
    """A JSON value, with another in place of each of its numbers."""
    if isinstance(value, dict):
        return {key: _all(item, instead) for key, item in value.items()}
    if isinstance(value, list):
        return [_all(item, instead) for item in value]
    return instead if isinstance(value, (int, float)) else value


def test_numbers_within_bounds_are_kept_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(
        '{"kind":"a","mono_ns":9223372036854775807,"x":0.00012345678901234567,"y":-1e-300}\n'
        '{"kind":"b","mono_ns":9223372036854775808}\n'
        '{"kind":"c","x":[1e101,9223372036854775808,7]}\n'
    )
    tail = Tail(file)
    kept, third = tail.poll()
    assert (kept["mono_ns"], kept["x"], kept["y"]) == (2**63 - 1, 0.00012345678901234567, -1e-300)
    assert third["x"] == [None, None, 7]
    assert tail.bad == 1


def test_a_report_of_centuries_has_an_axis(typed: Typed, tmp_path: Path) -> None:
    session = tmp_path / "here" / "s"
    shutil.copytree(RECORDED, session)
    meta = json.loads((session / "session.json").read_text())
    (session / "session.json").write_text(json.dumps({**meta, "wall_s": -1e60}))
    status, _, err = typed("report", "./s", "-o", "r.html")
    assert status == 0, err


def test_a_mistake_promises_no_training_where_none_runs(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("torchtop.commands.listing.list_sessions", broken)
    status, _, err = typed("ls")
    assert status == 1 and "mistake of its own" in err
    assert "training goes on" not in err


def test_a_session_in_a_place_with_escapes_is_told_without_them(
    typed: Typed, tmp_path: Path
) -> None:
    place = tmp_path / "here" / "\x1b[31m\nx"
    shutil.copytree(RECORDED, place / "s")
    # when
    status, out, err = typed("attach", "--no-tui", f"./{place.name}/s")
    # then
    assert (status, err) == (0, "")
    assert "summary: " in out and all(line.isprintable() for line in out.splitlines())
    # when
    status, out, _ = typed("report", f"./{place.name}/s", "-o", f"{place.name}/r.html")
    assert status == 0 and (place / "r.html").is_file()
    assert out.rstrip("\n").isprintable()
