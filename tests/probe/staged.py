"""Scripts run by a staged `rank.py`, and by plain Python for comparison."""

from __future__ import annotations

import atexit
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchtop.launch.stage import stage_probe
from torchtop.session.tail import Tail


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

    def rank_records(self, rank: int, kind: str) -> list[dict[str, Any]]:
        """The records of the one file of a rank's, none of which is bad or missing."""
        (file,) = [
            file
            for file in (self.root / "ranks").glob(f"{rank}-0-*.jsonl")
            if not file.name.endswith(".process.jsonl")
        ]
        tail = Tail(file)
        records = tail.poll()
        assert tail.bad == 0
        assert [record["seq"] for record in records] == list(range(len(records)))
        return [record for record in records if record["kind"] == kind]

    def rows(self, rank: int) -> list[dict[str, Any]]:
        """The recorded steps of a rank, one dict each."""
        rows = []
        for record in self.rank_records(rank, "steps"):
            names = [name for name, values in record.items() if isinstance(values, list)]
            columns = [record[name] for name in names]
            rows += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return rows

    def facts(self, rank: int, subject: str) -> list[dict[str, Any]]:
        """The facts of one subject that a rank has told."""
        return [fact for fact in self.rank_records(rank, "facts") if fact["subject"] == subject]

    def process(self, kind: str) -> list[dict[str, Any]]:
        """Records of rank.py itself, over all runs, the latest last."""
        records = sorted(self.records("*.process.jsonl"), key=lambda record: record["mono_ns"])
        return [record for record in records if record["kind"] == kind]


@lru_cache
def bare_python() -> str:
    """An interpreter that has torch and no torchtop: this one, where torchtop is not installed.

    Otherwise one that has our packages by a path alone, so that what an editable install adds to
    the path of this one does not count.
    """
    try:
        importlib.metadata.distribution("torchtop")
    except importlib.metadata.PackageNotFoundError:
        return sys.executable
    folder = tempfile.mkdtemp(prefix="torchtop-bare-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = venv.EnvBuilder(symlinks=True)
    made.create(folder)
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    for packages in Path(folder).glob("lib/python*/site-packages"):
        (packages / "ours.pth").write_text("\n".join(ours) + "\n")
    return str(Path(folder) / "bin" / "python")


def run(
    words: list[str],
    cwd: Path,
    flags: tuple[str, ...] = ("-u",),
    stdin: str = "",
    timeout_s: float = 60,
    **env: str,
) -> Ended:
    """Run Python with these words, and wait for its end."""
    ended = subprocess.run(
        [bare_python(), *flags, *words],
        cwd=cwd,
        env=clean_environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
