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


OWN = """
[workloads.mine]
script = "train.py"
nproc = 2
options = { tt = false, lr = 0.1 }
"""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["run", "mine"], "--nproc-per-node=2 {}/train.py --lr=0.1"),
        (
            ["run", "mine", "--nproc", "3", "-o", "tt=true", "-o", "lr=0.5"],
            "--nproc-per-node=3 {}/train.py --tt --lr=0.5",
        ),
        # the first cell stands for all
        (
            ["sweep", "mine", "-o", "tt=true", "-o", "lr=0.5,0.7"],
            "--nproc-per-node=2 {}/train.py --tt --lr=0.5",
        ),
    ],
)
@pytest.mark.parametrize("typed", [True, False])
def test_the_command_has_the_options_that_were_given(
    typed: bool,
    words: list[str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "torchtop.toml").write_text(OWN)
    (tmp_path / "torchtop.toml").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setattr("sys.stdin", Typed("n\n") if typed else io.StringIO())

    assert main([words[0], "--device", "cpu", *words[1:]]) == 2
    told = capsys.readouterr().err
    end = "\n" if typed else " -- agree to it once with --yes"
    assert f"torchrun {shown.format(tmp_path)}{end}" in told
