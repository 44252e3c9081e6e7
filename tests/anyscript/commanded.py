"""Commands of a user's own, run by ``torchtop run -- COMMAND`` and by themselves."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.command import processes_of, torchtop
from probe.staged import bare_python

TRAIN = '''
"""Trains with DDP where a launcher says so, and alone otherwise."""
import hashlib, json, os, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(sys.argv[1])
FAILS = sys.argv[2:]
if "RANK" in os.environ:
    dist.init_process_group("gloo")
rank = dist.get_rank() if dist.is_initialized() else 0
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
if dist.is_initialized():
    net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
data = TensorDataset(torch.randn(STEPS * 4, 8), torch.zeros(STEPS * 4, dtype=torch.long))


def fail(how):
    if how == "raise":
        raise ValueError("on purpose")
    sys.exit(3)


for step, (x, y) in enumerate(DataLoader(data, batch_size=4, num_workers=1)):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step == 10 and FAILS and rank == 1:
        fail(*FAILS)
weights = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
told = {"rank": rank, "loss": loss.item(), "weights": hashlib.sha256(weights).hexdigest()}
told["path"], told["argv"] = sys.path, sys.argv
print(json.dumps(told), flush=True)
if dist.is_initialized():
    dist.destroy_process_group()
'''

SHELL = """
set -e
echo "the shell begins"
export OMP_NUM_THREADS=1
$PYTHON -m torch.distributed.run --nproc-per-node 2 train.py "$@"
echo "the shell ends"
"""


@dataclass(frozen=True)
class Told:
    """A run under torchtop that has ended, by what it left."""

    code: int
    out: str
    err: str
    root: Path

    @property
    def summary(self) -> dict[str, Any]:
        """Its summary."""
        made: dict[str, Any] = json.loads((self.root / "summary.json").read_text())
        return made

    @property
    def events(self) -> list[dict[str, Any]]:
        """The supervisor's records."""
        (file,) = self.root.glob("nodes/*/events.jsonl")
        return [json.loads(line) for line in file.read_text().splitlines()]

    def log(self, name: str) -> str:
        """A file below ``logs``."""
        return (self.root / "logs" / name).read_text()

    @property
    def left(self) -> list[str]:
        """Processes that it left."""
        return processes_of(self.root.name)


def write(folder: Path) -> None:
    """The user's files."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "train.sh").write_text(SHELL)


def bare(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """The command by itself: started, for a machine has time for both at once."""
    return subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """What a process that was started has written when it has ended."""
    try:
        return process.communicate(timeout=180)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def told(*words: str, cwd: Path, home: Path, **env: str) -> Told:
    """The same, or a script, by ``torchtop run --no-tui``."""
    done = torchtop("run", "--no-tui", *words, home=home, cwd=cwd, PYTHON=bare_python(), **env)
    assert done.stdout.startswith("session "), done.stdout + done.stderr
    root = home / "sessions" / done.stdout.split()[1]
    return Told(done.returncode, done.stdout, done.stderr, root)
