"""Python processes as a command under torchtop has them, and the same without it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.staged import Ended, Stage, bare_python, clean_environment

RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1", "MASTER_ADDR": "x"}
"""What a launcher tells a rank."""


@dataclass(frozen=True)
class Visited:
    """A session whose command is whatever a test runs."""

    stage: Stage

    @property
    def site(self) -> str:
        """The folder that comes first on PYTHONPATH."""
        return str(self.stage.root / "stage" / "site")

    def run(self, words: list[str], cwd: Path, python: str | None = None, **env: str) -> Ended:
        """Run Python with these words under torchtop, to its end."""
        before = env.pop("PYTHONPATH", None)
        path = self.site if before is None else f"{self.site}:{before}"
        return run(words, cwd, python, TORCHTOP_SESSION="x", PYTHONPATH=path, **env)

    @property
    def files(self) -> list[str]:
        """The record files, by the names that do not change: rank, attempt, kind."""
        names = (file.name for file in (self.stage.root / "ranks").glob("*.jsonl"))
        return sorted(_without_pid(name) for name in names)

    def records(self, pattern: str, kind: str) -> list[dict[str, Any]]:
        """The records of a kind in the files that fit."""
        return [record for record in self.stage.records(pattern) if record["kind"] == kind]


def _without_pid(name: str) -> str:
    stem, *kinds = name.split(".")
    rank, attempt, _pid, *image = stem.split("-")
    return ".".join(["-".join([rank, attempt, *image]), *kinds[:-1]])


def run(words: list[str], cwd: Path, python: str | None = None, **env: str) -> Ended:
    """Run plain Python with these words, to its end."""
    ended = subprocess.run(
        [python or bare_python(), *words],
        cwd=cwd,
        env=clean_environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
