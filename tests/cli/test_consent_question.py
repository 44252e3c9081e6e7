"""The question in a shell before a workload of a directory's file is started for the first time."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from torchtop.cli import main

WORDS = [f"--option-{number}={number}" for number in range(60)]


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.fault(30, "a hostile torchtop.toml", "its command is shown, and asked for")
def test_all_of_the_command_is_shown_in_lines_that_fit_and_steers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a file in a folder of an evil name, with a long command
    folder = tmp_path / "evil\x1b[2J\u202efolder"
    folder.mkdir()
    command = ["bash", "-c", "echo \x1b]0;title\x07", *WORDS]
    (folder / "torchtop.toml").write_text(f"[workloads.ours]\ncommand = {json.dumps(command)}\n")
    (folder / "torchtop.toml").chmod(0o600)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdin", Typed("n\n"))
    # when it is to be started
    status = main(["run", "--device", "cpu", "ours"])
    told = capsys.readouterr().err
    # then nothing is left out, no line is too long, and the answer counts
    shown = [line.removeprefix("  ") for line in told.splitlines() if line.startswith("  ")]
    assert all(word in "".join(shown) for word in WORDS)
    assert r"\x1b]0;title\x07" in "".join(shown)
    assert all(len(line) < 58 for line in shown)
    assert all(line.isprintable() for line in told.splitlines())
    assert "[y/N]" in told and status == 2 and "was not started" in told
