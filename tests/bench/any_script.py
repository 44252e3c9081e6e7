"""What torchtop costs a script of the kind that people have: bare and under it, in turn.

Runs the scripts of ``tests/frameworks/scripts`` by torchrun and by ``torchtop run``, in alternating
pairs, and compares the throughput that each script itself tells. Prints one line of JSON a script.
Scripts whose library is not installed are left out. ``--device cpu`` tries the bench itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "frameworks" / "scripts"

JOBS = {
    "hf_trainer": (
        "transformers",
        "--steps 150 --every 1000000 --width 768 --layers 6 --length 256 --batch 64 --workers 2",
        "--steps 60 --every 1000000",
    ),
    "lightning_fit": (
        "lightning",
        "--epochs 2 --batches 400 --width 4096 --layers 8 --batch 512 --workers 2",
        "--epochs 2 --batches 60",
    ),
    "accelerate_loop": (
        "accelerate",
        "--epochs 2 --batches 400 --width 64 --size 64 --batch 128 --workers 4",
        "--epochs 2 --batches 60",
    ),
    "compiled_loop": (
        "torch",
        "--epochs 2 --batches 300 --width 768 --layers 6 --length 256 --batch 32 --workers 2",
        "--epochs 2 --batches 60 --backend aot_eager",
    ),
}
"""By script: what it needs, and its options on GPUs and on a CPU.

On GPUs they are what sets the pace: a host of many cores in demand differs from itself by ten per
cent and more from run to run, in which a cost of one per cent is not to be seen.
"""

_TOLD = re.compile(r"throughput ([0-9.]+) samples/s")


def main() -> None:
    """Measure each script that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", choices=JOBS, action="append")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    for script in args.script or JOBS:
        needs, *options = JOBS[script]
        if find_spec(needs) is None:
            print(f"{script}: {needs} is not installed", file=sys.stderr)
            continue
        words = [str(SCRIPTS / f"{script}.py"), "--device", args.device]
        words += options[args.device == "cpu"].split()
        if script == "lightning_fit":
            words += ["--devices", str(args.ranks)]
        told = compare(words, args.device, args.ranks, args.pairs)
        print(json.dumps({"job": script, **told}), flush=True)


def compare(words: list[str], device: str, ranks: int, pairs: int) -> dict[str, object]:
    """Run in alternating pairs, the first of each in turn.

    Returns:
        The median ratio of bare throughput to that under torchtop, its extremes, and both medians
        in samples a second.
    """
    bare, watched = [], []
    for pair in range(pairs):
        for turn in (0, 1) if pair % 2 == 0 else (1, 0):
            rates, run = ((bare, run_bare), (watched, run_watched))[turn]
            rates.append(run(words, device, ranks))
            kind = ("bare", "torchtop")[turn]
            print(f"  pair {pair + 1}, {kind}: {rates[-1]:,.1f}", file=sys.stderr, flush=True)
    ratios = [a / b for a, b in zip(bare, watched, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(min(ratios), 4), round(max(ratios), 4)],
        "bare samples/s": round(statistics.median(bare), 1),
        "torchtop samples/s": round(statistics.median(watched), 1),
        "pairs": pairs,
    }


def run_bare(words: list[str], device: str, ranks: int) -> float:
    """By torchrun alone; samples a second."""
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    launcher += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, *launcher, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return _rate(done.stderr, done)


def run_watched(words: list[str], device: str, ranks: int) -> float:
    """By ``torchtop run``; samples a second, from the log of the first rank."""
    with tempfile.TemporaryDirectory() as home:
        path = os.pathsep.join(str(ROOT / part) for part in ("tui", "workloads"))
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHTOP_HOME": home, "PYTHONPATH": path}
        count = ["--nproc" if device == "cpu" else "--gpus", str(ranks)]
        command = [sys.executable, "-m", "torchtop", "run", "--no-tui", "--device", device, *count]
        done = subprocess.run(
            [*command, *words], env=env, capture_output=True, text=True, check=False
        )
        logs = [file.read_text() for file in Path(home).glob("sessions/*/logs/**/stderr.log")]
        print("  " + done.stdout.strip().splitlines()[-3][:160], file=sys.stderr)
        return _rate("\n".join(logs), done)


def _rate(text: str, done: subprocess.CompletedProcess[str]) -> float:
    found = _TOLD.search(text)
    if done.returncode or found is None:
        sys.exit(f"a run failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return float(found[1])


if __name__ == "__main__":
    main()
