"""Bad input: one clear line, the right status, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from cli.command import environment, torchtop
from torchtop.cli import main


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["run", "nosuch.py"], 2, "nosuch.py"),
        (["run", "nosuch"], 2, "no workload nosuch"),
        (["run", "resnet50-cifa10"], 2, "resnet50-cifar10"),
        (["run", "--gpus", "9", "compute-heavy"], 2, "GPU"),
        (["run", "--gpus", "some", "compute-heavy"], 2, "whole number"),
        (["run", "--nproc", "0", "compute-heavy"], 2, "at least 1"),
        (["run", "--device", "cpu", "compute-heavy", "-o", "batch=abc"], 2, "batch"),
        (["run", "--device", "cpu", "compute-heavy", "-o", "batch"], 2, "key=value"),
        (["run", "--device", "cpu", "compute-heavy", "-o", "bach=3"], 2, "batch"),
        (["run", "--device", "cpu", "resnet50-cifar10", "-o", "batch=15"], 2, "multiple of 2"),
        (["run", "--device", "cpu", "compute-heavy", "extra"], 2, "extra"),
        (["run", "--device", "cpu", "broken.py"], 1, "broken.py, line 1"),
        (["run", "--device", "cpu", "folder.py"], 2, "directory"),
        (["run", "--device", "cpu", "-m", "no.such.module"], 2, "no.such.module"),
        (["run", "--python", "/nowhere/python", "x.py"], 2, "/nowhere/python"),
        (["show"], 2, "no sessions"),
        (["stop"], 2, "no session is running"),
        (["attach", "some"], 2, "no sessions"),
        (["rm"], 2, "say which"),
        (["rm", "--older-than", "soon"], 2, "30d"),
        ([], 2, "terminal"),
    ],
)
def test_one_line_and_a_status(words: list[str], status: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "x.py").write_text("pass\n")
    home = tmp_path / "home"

    done = torchtop(*words, home=home, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (status, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert told in lines[0]
    assert not list(home.glob("sessions/*"))


def test_an_interpreter_without_torch_is_told(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    (tmp_path / "x.py").write_text("import torch\n")
    python = str(tmp_path / "bare" / "bin" / "python")

    done = torchtop(
        "run", "--device", "cpu", "--python", python, "x.py", home=tmp_path / "h", cwd=tmp_path
    )

    assert done.returncode == 2
    assert "PyTorch is not installed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "x.py").write_text("pass\n")

    done = torchtop("run", "--device", "cpu", "x.py", home=tmp_path / "file" / "h", cwd=tmp_path)

    assert done.returncode == 2
    assert "TORCHTOP_HOME" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_user_without_a_home_directory_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TORCHTOP_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(KeyError("no such user")))

    for words in (["show", "some"], ["ls"], ["rm", "some"], ["stop", "some"]):
        assert main(words) == 2
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1 and "set TORCHTOP_HOME" in told[0]


def test_the_users_files_do_not_take_the_place_of_standard_modules(tmp_path: Path) -> None:
    for name in ("json", "queue", "argparse", "dataclasses"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")

    done = torchtop("ls", home=tmp_path / "h", cwd=tmp_path, PYTHONSAFEPATH="1")

    assert done.returncode == 0, done.stderr
    assert sys.version_info < (3, 11) or "no sessions" in done.stdout


@pytest.mark.parametrize("words", [["run", "x.py"], ["workloads"]])
def test_a_current_directory_that_is_gone_is_told(words: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys; os.rmdir(os.getcwd()); sys.path.pop(0); "
        f"from torchtop.cli import main; sys.exit(main({words!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gone,
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "current directory is gone" in done.stderr


def test_a_mistake_of_torchtops_own_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by\nitself")

    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path))
    monkeypatch.setattr("torchtop.commands.listing.list_sessions", broken)

    assert main(["ls"]) == 1

    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "ZeroDivisionError" in told
    (story,) = tmp_path.glob("*.txt")
    assert "Traceback" in story.read_text()
