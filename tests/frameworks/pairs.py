"""A training script run as it is and with the probe, at the same time, for comparison."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.staged import Stage, clean_environment

SCRIPTS = Path(__file__).with_name("scripts")
_LIMIT_S = 120.0
_ATTEMPTS = 3
_TORCH_ABORT = "terminate called without an active exception"
_TORCHRUN = ("-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")


@dataclass(frozen=True)
class Ended:
    """One run: its exit status, and what each rank printed."""

    code: int
    outputs: list[str]
    errors: list[str]

    @property
    def is_torch_abort(self) -> bool:
        """Whether gloo ended a process whose interpreter had gone, as it does now and then."""
        return self.code != 0 and any(_TORCH_ABORT in error for error in self.errors)


@dataclass(frozen=True)
class Pair:
    """The same script with the probe and without."""

    stage: Stage
    ranks: int
    plain: Ended
    probed: Ended

    def rows(self, rank: int) -> dict[int, dict[str, Any]]:
        """The recorded steps by number."""
        return {row["step"]: row for row in self.stage.rows(rank)}


def run(words: list[str], ranks: int, folder: Path) -> Pair:
    """Run a script of `SCRIPTS` bare and probed: by itself, or on so many ranks.

    Args:
        words: the script's name and its arguments.
        ranks: one is no job of torchrun's.
        folder: for what the runs write.
    """
    for attempt in range(_ATTEMPTS):
        pair = _run(words, ranks, folder / str(attempt))
        # There is nothing to compare with then. On the probed side alone it is told.
        if not pair.plain.is_torch_abort:
            break
    return pair


def _run(words: list[str], ranks: int, folder: Path) -> Pair:
    stage = Stage.make(folder / "session")
    script = [str(SCRIPTS / words[0]), *words[1:]]
    folders = [folder / "plain", folder / "probed"]
    for each in folders:
        each.mkdir()
    jobs = [
        _start(command, ranks, cwd)
        for command, cwd in zip((script, [stage.rank_py, *script]), folders, strict=True)
    ]
    plain, probed = (_end(job, ranks, cwd) for job, cwd in zip(jobs, folders, strict=True))
    return Pair(stage, ranks, plain, probed)


def _start(words: list[str], ranks: int, cwd: Path) -> subprocess.Popen[bytes]:
    launcher = []
    if ranks > 1:
        flags = [f"--nproc-per-node={ranks}", "--redirects=3", f"--log-dir={cwd / 'logs'}"]
        launcher = [*_TORCHRUN, *flags]
    with (cwd / "stdout.log").open("wb") as out, (cwd / "stderr.log").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, *launcher, *words],
            cwd=cwd,
            env=clean_environment(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1"),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )


def _end(process: subprocess.Popen[bytes], ranks: int, cwd: Path) -> Ended:
    try:
        process.wait(_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    pattern = "logs/*/*/*/{}.log" if ranks > 1 else "{}.log"
    outputs, errors = (
        [file.read_text() for file in sorted(cwd.glob(pattern.format(name)))]
        for name in ("stdout", "stderr")
    )
    if process.returncode and ranks > 1:
        errors.append((cwd / "stderr.log").read_text())
    return Ended(process.returncode, outputs, errors)
