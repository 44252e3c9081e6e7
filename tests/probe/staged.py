"""Scripts run by a staged `rank.py`, and by plain Python for comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtop.launch.stage import stage_probe


def clean_environment(**changes: str) -> dict[str, str]:
    """Ours without what would lead an interpreter to this checkout or to a rank's number."""
    dropped = ("PYTHON", "TORCHTOP", "TORCHELASTIC", "OMP_")
    ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped) and k not in ranks}
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **changes}


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Stage:
    """A session directory with a staged probe."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> Stage:
        """Stage the probe into a new directory."""
        (root / "stage").mkdir(parents=True)
        (root / "ranks").mkdir()
        stage_probe(root / "stage")
        return cls(root)

    @property
    def rank_py(self) -> str:
        """The path of the staged script."""
        return str(self.root / "stage" / "rank.py")

    def records(self, pattern: str) -> list[dict[str, Any]]:
        """The records of the files in ``ranks`` that fit."""
        files = sorted((self.root / "ranks").glob(pattern))
        lines = [line for file in files for line in file.read_bytes().splitlines()]
        return [json.loads(line) for line in lines]

    def process(self, kind: str) -> list[dict[str, Any]]:
        """Records of rank.py itself, over all runs, the latest last."""
        records = sorted(self.records("*.process.jsonl"), key=lambda record: record["mono_ns"])
        return [record for record in records if record["kind"] == kind]


def run(
    words: list[str], cwd: Path, flags: tuple[str, ...] = ("-u",), stdin: str = "", **env: str
) -> Ended:
    """Run Python with these words, and wait for its end."""
    ended = subprocess.run(
        [sys.executable, *flags, *words],
        cwd=cwd,
        env=clean_environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
