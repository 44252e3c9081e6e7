"""The repository speaks of itself alone: nothing in it depends on the machine it was written on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PERSONAL = re.compile(
    r"(?<![\w.~}$/)-])"  # the start of an absolute path, not the middle of another
    r"/(?:work|root|workspace|mnt/\w+|(?:home|Users)/(?!(?:ana|u|user)\b)\w+|tmp/\w[\w.-]*)(?![\w-])"
)
"""Paths of one person or one machine: home directories, checkouts and scratch folders. The users
ana, u and user are made up, for tests."""


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Every text file that is tracked, by name. Files of which git knows, so not `.venv`."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if run.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, run.stdout.decode().split("\0")):
        file = ROOT / name
        content = file.read_bytes() if file.is_file() else b"\0"
        if b"\0" not in content:
            yield name, content.decode("utf-8", "replace")


@pytest.mark.skipif(not shutil.which("git"), reason="git lists the files, and is not here")
def test_no_path_of_one_machine_is_in_the_repository() -> None:
    found = [
        f"{name}:{number}: {match[0]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        for match in PERSONAL.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cd {}work/main", True),
        ('"cwd": "{}root"', True),
        ("see {}home/alice/run", True),
        ("`{}tmp/abc/x.py`", True),
        ("{}home/ana/train.py", False),
        ("--framework and ./work/x and ~/work", False),
        ("~/.local/state and {}tmp and {}etc/systemd", False),
        ("https://example.org/work/page", False),
    ],
)
def test_the_rule_knows_a_path_from_a_word(line: str, found: bool) -> None:
    assert bool(PERSONAL.search(line.replace("{}", "/"))) is found
