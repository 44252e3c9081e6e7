"""Damaged session files: shown as far as they go, with a count, by every way of looking."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.driving import LARGE, driven
from app.made_session import CASES, make
from torchtop.cli import main

ROW = (20, "torn, NUL or unknown records", "shown as far as it goes, with a count")

Harm = Callable[[bytes], bytes]


def torn_tail(data: bytes) -> bytes:
    """A write that was cut off: what is there of it waits for the rest."""
    return data + b'{"kind":"analysis","seq":99,"mono_ns":1'


def nul_tail(data: bytes) -> bytes:
    """What some file systems leave after a power cut."""
    return data + b"\0" * 8192 + b"\n"


def bad_inside(data: bytes) -> bytes:
    """A line in the middle that is no record, and one that is no text."""
    lines = data.splitlines(keepends=True)
    middle = len(lines) // 2
    return b"".join([*lines[:middle], b'{"kind": "tick", oops\n', b"\xff\xfe\n", *lines[middle:]])


def newer_schema(data: bytes) -> bytes:
    """A file of a later version, with kinds and fields that are not known here."""
    head, rest = data.split(b"\n", 1)
    header = json.loads(head) | {"schema": 99, "colour": "blue"}
    news = b'{"kind":"dream","seq":1,"mono_ns":1,"of":[1,{"x":null}]}\n'
    return json.dumps(header).encode() + b"\n" + news + rest


HARMS: dict[str, tuple[Harm, str | None]] = {
    "torn tail": (torn_tail, None),
    "NUL tail": (nul_tail, "bad lines"),
    "bad line inside": (bad_inside, "bad lines"),
    "newer schema": (newer_schema, "written by a newer torchtop"),
}
FILES = (
    "analysis.jsonl", "history.jsonl", "nodes/*/devices.jsonl", "nodes/*/events.jsonl",
    "ranks/*.jsonl",
)  # fmt: skip


def harm(session: Path, how: Harm, pattern: str) -> None:
    """Damage files of a session as `how` does."""
    files = list(session.glob(pattern))
    assert files
    for file in files:
        file.write_bytes(how(file.read_bytes()))


@pytest.mark.fault(*ROW)
@pytest.mark.parametrize("name", HARMS)
async def test_all_files_damaged_at_once_are_shown_on_screen(tmp_path: Path, name: str) -> None:
    how, told = HARMS[name]
    async with driven(tmp_path, size=LARGE) as d:
        assert d.app.session is not None
        for pattern in FILES:
            harm(d.app.session, how, pattern)
        d.app.follow(d.app.session)
        # then every pane has its values, and what could not be read is counted
        await d.shows(
            "Waiting for data", "samples/s", "NVIDIA H200", "2 ranks up", "workers 4", *[told or ""]
        )
        assert "cannot draw" not in d.text
        assert told or "bad lines" not in d.text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.fault(*ROW)
@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize("name", HARMS)
def test_every_command_goes_on(
    home: Path, name: str, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = make(home / "sessions" / "20261130-x", CASES["failed"], 65)
    harm(session, HARMS[name][0], pattern)
    for words, status in ((["ls"], 0), (["show"], 0), (["show", "--json"], 0)):
        assert main(words) == status
    told = capsys.readouterr()
    assert "20261130-x" in told.out and not told.err
    assert main(["attach", "--no-tui"]) in (0, 1)
    assert main(["analyse"]) == 0
    assert "mistake of its own" not in capsys.readouterr().err


@pytest.mark.fault(*ROW)
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\0" * 100, b"\xff", b'{"id": 7}'])
def test_descriptions_that_cannot_be_read_are_told(
    home: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    session = make(home / "sessions" / "20261130-x", CASES["failed"], 20)
    for name in ("session.json", "summary.json", "stage/launch.json"):
        (session / name).parent.mkdir(exist_ok=True)
        (session / name).write_bytes(content)
    for words in (["ls"], ["show"], ["attach", "--no-tui"]):
        assert main(words) in (0, 1)
    told = capsys.readouterr()
    assert "20261130-x" in told.out and "mistake of its own" not in told.err
    assert content.startswith(b'{"') or "session.json is missing or damaged" in told.out


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_directory_that_becomes_unreadable_ends_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, size=LARGE) as d:
        assert d.app.session is not None
        d.app.session.chmod(0)
        await d.shows("Waiting for data", "LOST")
        d.app.session.chmod(0o700)


@pytest.mark.fault(26, "the session directory goes away or is locked", "no crash; a clear message")
async def test_a_directory_that_vanishes_in_a_replay_ends_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, size=LARGE, replay=True) as d:
        assert d.app.session is not None
        shutil.rmtree(d.app.session)
        await d.press("shift+right")
        await d.shows("REPLAY", "Waiting for data")
        await d.press("comma")
        await d.until(lambda: d.app.view.replay and d.app.view.replay.at_s < 30)
        assert d.app.failure is None


def test_the_cases_are_as_they_say(tmp_path: Path) -> None:
    session = make(tmp_path / "s", replace(CASES["healthy"]), 5)
    data = (session / "analysis.jsonl").read_bytes()
    for how, _ in HARMS.values():
        assert how(data) != data
