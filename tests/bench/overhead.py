"""What the probe costs a training job: blocks of steps with it and without it, in one process.

Alternating blocks cancel the drift of the machine, which is larger than the cost. Prints one line
of JSON. Runs itself under torchrun: on two GPUs where there are, else on the CPU with gloo. Jobs:
``gpu-bound`` (ResNet-50, 224 pixels, bf16, 128 a rank) and ``launch-bound`` (32 pixels); on a CPU a
small network takes the place of both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JOBS = {"gpu-bound": (224, 128, 6, 40), "launch-bound": (32, 128, 6, 200)}
"""Pixels, batch a rank, steps a block, pairs of blocks."""


KIND_STEPS = 200

SETTLE_S = 12.0
"""Twice as long as the probe watches its cost before it decides."""


class Switch:
    """Takes the probe's hooks out of torch and puts them back."""

    def __init__(self, directory: Path) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        from torchtop.probe import hooks

        self._places = [
            (dataloader._BaseDataLoaderIter, "__next__"),
            (torch.autograd, "backward"),
            (torch, "save"),
            (DistributedDataParallel, "__init__"),
        ]
        self._global = (
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
        )
        self._off = [getattr(owner, name) for owner, name in self._places]
        self.probe = hooks.install(torch, directory)
        self._on = [getattr(owner, name) for owner, name in self._places]
        self._hooks = [dict(held) for held in self._global]

    def set(self, on: bool) -> None:
        """Have the hooks in place, or not."""
        for (owner, name), value in zip(self._places, self._on if on else self._off, strict=True):
            setattr(owner, name, value)
        for held, hooks in zip(self._global, self._hooks, strict=True):
            held.clear()
            held.update(hooks if on else {})


def batches(device: Any, pixels: int, size: int) -> Iterator[Any]:
    """The same batch for ever, through a DataLoader as in any script."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    batch = (
        torch.randn(size, 3, pixels, pixels, device=device),
        torch.randint(0, 10, (size,), device=device),
    )

    class Same(Dataset[Any]):
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, _index: int) -> Any:
            return batch

    yield from DataLoader(Same(), batch_size=None)


class Job:
    """One rank's training, a block of steps at a time."""

    def __init__(self, name: str) -> None:
        import torch

        self.cuda = torch.cuda.is_available()
        local = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(device)
        pixels, size, self.steps, _ = JOBS[name] if self.cuda else (16, 16, 4, 0)
        model = torch.nn.parallel.DistributedDataParallel(_network(self.cuda).to(device))
        self._model = model
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        half = torch.autocast("cuda", torch.bfloat16)
        self._amp = half if pixels == 224 else contextlib.nullcontext()
        self._data = batches(device, pixels, size)

    def block(self, count: int) -> float:
        """Train so many steps; returns the seconds that they took on all ranks."""
        _settle(self.cuda)
        start = time.perf_counter()
        for _ in range(count):
            self.step()
        _settle(self.cuda)
        return time.perf_counter() - start

    def step(self) -> None:
        """Train one step."""
        import torch

        x, y = next(self._data)
        self._optimizer.zero_grad()
        with self._amp:
            loss = torch.nn.functional.cross_entropy(self._model(x), y)
        loss.backward()
        self._optimizer.step()


def _network(cuda: bool) -> Any:
    import torch

    if cuda:
        from torchvision.models import resnet50

        return resnet50(num_classes=10)
    layers = [torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 512), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 10))


def rank_main(name: str, pairs: int) -> None:
    """One rank of the measurement; rank 0 prints."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    switch = Switch(Path(os.environ["BENCH_DIRECTORY"]))
    job = Job(name)
    # With the probe, until it has found how many steps its budget lets it measure.
    settled = time.perf_counter() + SETTLE_S
    while _goes_on(settled):
        job.block(10)
    told = measure(job, switch, pairs)
    told.update(by_kind(job, switch))
    if dist.get_rank() == 0:
        print(json.dumps({"job": name, **told, "disabled": switch.probe.disabled}))
    dist.destroy_process_group()


def measure(job: Job, switch: Switch, pairs: int) -> dict[str, Any]:
    """Pairs of blocks with the probe and without, the order of each drawn by lot."""
    ratios, times, spent_ns = [], [], 0
    order = random.Random(1)
    for _ in range(pairs):
        measured = {}
        for on in order.sample((True, False), 2):
            switch.set(on)
            job.block(1)
            before_ns = switch.probe.spent_ns()
            measured[on] = job.block(job.steps)
            spent_ns += switch.probe.spent_ns() - before_ns
        ratios.append(measured[True] / measured[False])
        times.append(measured[False] / job.steps * 1e3)
    return {**_told(ratios, times), "probe_us_a_step": round(spent_ns / 1e3 / pairs / job.steps, 1)}


def by_kind(job: Job, switch: Switch) -> dict[str, Any]:
    """What one step takes of the training thread: one that is measured, and one that is not."""
    from torchtop.session.records import is_recorded

    switch.set(True)
    job.block(10)
    probe, stride = switch.probe, round(1 / switch.probe.cost()["detail"])
    spent: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(KIND_STEPS):
        # The step that ends within this iteration: its markers are those of the iteration, but
        # for the optimizer's, which belong to the next.
        step, before = probe.meter.step, probe.spent_ns()
        job.step()
        spent[is_recorded(step + 1, stride)].append(probe.spent_ns() - before)
    _settle(job.cuda)
    median = {kind: statistics.median(took) / 1e3 if took else None for kind, took in spent.items()}
    return {"one_in": stride, "us_measured": median[True], "us_not_measured": median[False]}


def _goes_on(until: float) -> bool:
    """Whether the moment has not come, as rank 0 sees it: all ranks do the same blocks."""
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    told = torch.tensor([float(time.perf_counter() < until)], device="cuda" if cuda else "cpu")
    dist.broadcast(told, 0)
    return bool(told.item())


def _settle(cuda: bool) -> None:
    import torch
    import torch.distributed as dist

    if cuda:
        torch.cuda.synchronize()
    dist.barrier()


def _told(ratios: list[float], times: list[float]) -> dict[str, Any]:
    """The median ratio, its quartiles, and a bootstrap interval of the median."""
    draw = random.Random(2)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "ratio": round(middle, 5),
        "quartiles": [round(low, 5), round(high, 5)],
        "interval_95": [round(medians[50], 5), round(medians[1949], 5)],
        "pairs": len(ratios),
        "step_ms": round(statistics.median(times), 2),
    }


def main() -> int:
    """Start the ranks for each job and print what they say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank-job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--nproc", type=int, default=2)
    args = parser.parse_args()
    if args.rank_job:
        rank_main(args.rank_job, args.pairs or JOBS[args.rank_job][3])
        return 0
    status = 0
    for job in args.jobs.split(","):
        with tempfile.TemporaryDirectory() as name:
            words = ["--nproc-per-node", str(args.nproc), "--rdzv-backend", "c10d"]
            words += ["--rdzv-endpoint", "localhost:0", __file__]
            words += ["--rank-job", job, "--pairs", str(args.pairs)]
            command = [sys.executable, "-m", "torch.distributed.run", *words]
            env = {**os.environ, "BENCH_DIRECTORY": name, "OMP_NUM_THREADS": "1"}
            status |= subprocess.run(command, env=env, check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
