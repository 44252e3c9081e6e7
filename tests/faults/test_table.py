"""The table of faults tells what came of each, and a process that is left fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

EXAMPLES = """
import subprocess, pytest

@pytest.mark.fault(2, "good", "it ends")
@pytest.mark.parametrize("case", [1, 2])
def test_good(case): pass

@pytest.mark.fault(1, "bad", "it is told")
def test_bad(): assert False

@pytest.mark.fault(3, "elsewhere", "it is told")
def test_elsewhere(): pytest.skip("needs GPU")

@pytest.mark.fault(4, "broken", "it is told")
def test_broken(nothing_of_that_name): pass

def test_leaves_something():
    null = subprocess.DEVNULL
    print("child", subprocess.Popen(["sleep", "600"], stdout=null, stderr=null).pid)
"""


def outcome(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = fault\n")
    (folder / "test_examples.py").write_text(EXAMPLES)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'tui'}:{TESTS}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_row_says_what_came_of_its_tests(tmp_path: Path) -> None:
    done = outcome(tmp_path, "-m", "fault")
    table = [line.split() for line in done.stdout.split(" faults ")[1].splitlines()]
    results = {line[0]: line[3:-1] for line in table if line and line[0].isdigit() and line[1:]}
    assert results["1"][-1] == "FAIL"
    assert results["2"][-2:] == ["pass", "(2)"]
    assert results["3"][-3:] == ["skip", "(needs", "GPU)"]
    assert results["4"][-1] == "FAIL"
    assert "no process is left" in done.stdout


def test_a_process_that_is_left_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS_GRACE_S", "0.1")
    done = outcome(tmp_path, "-k", "leaves")
    child = int(done.stdout.split("child ")[1].split()[0])
    os.kill(child, 9)
    assert f"LEFT RUNNING: {child} sleep 600" in done.stdout
    assert done.returncode == 1
