"""A straggler: one rank is slower, and all others wait for it in the all-reduce.

The slow rank loses ``delay_ms`` in each step, in the part that ``slow_phase`` names: a pause of the
host (before the optimizer, in loading a batch, or between steps), or more work for the device in
forward or backward. The ranks that wait look busy: their GPU spins in NCCL. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.straggler --slow-phase backward --steps 100
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

if not __package__:  # started as a file: find the package around it, after all others
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from torchtop_workloads import common, models


def main() -> None:
    """Train until the options say stop."""
    with common.job("straggler") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    if options.slow_phase == "data" and options.workers > 0:
        common.fail("straggler: slow_phase=data needs workers=0: loader workers hide the pause", 2)
    slow_in = options.slow_phase if job.rank == slow_rank(job) else None
    pause = make_pause(job.device, options.delay_ms)

    shape = (3, options.image_size, options.image_size)
    batches = common.random_batches(shape, job)
    loader = common.resident_loader(batches, job, fetch=pause if slow_in == "data" else None)

    torch.backends.cudnn.benchmark = True  # the shapes never change: find the fastest kernels
    model = common.wrap(models.conv_stack(options.channels, options.depth), job)
    extra_work = make_work(job.device, options.delay_ms if slow_in in DEVICE_PHASES else 0.0)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    report = common.Report(job, loader, synthetic_data=True)
    for _epoch in itertools.count():
        for batch in loader:
            images, labels = job.to_device(batch)

            optimizer.zero_grad()
            if slow_in == "forward":
                extra_work()
            with job.autocast():
                logits = model(images)
                loss = criterion(logits, labels)
            if slow_in == "backward":
                logits.register_hook(lambda _gradient: extra_work())
            loss.backward()
            if slow_in == "optimizer":
                pause()
            optimizer.step()
            if slow_in == "host":
                pause()

            common.log(loss=loss.detach())
            if report.step(loss):
                return


DEVICE_PHASES = ("forward", "backward")


def slow_rank(job: common.Job) -> int:
    """The rank to slow down: the last one where the one asked for does not exist."""
    asked: int = job.options.slow_rank
    return min(asked, job.world_size - 1)


def make_pause(device: torch.device, delay_ms: float) -> Callable[[], None]:
    """A pause of the host that the device feels in full.

    Without the wait for the device first, a host that runs ahead would hide the pause.
    """

    def pause() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        time.sleep(delay_ms / 1000)

    return pause


def make_work(device: torch.device, duration_ms: float) -> Callable[[], None]:
    """Matrix products that keep a device busy for a while, measured here, and need no host.

    Args:
        device: where they run.
        duration_ms: how long they shall take; 0 makes none.
    """
    if duration_ms == 0:
        return lambda: None
    on_gpu = device.type == "cuda"
    size, kind = (4096, torch.bfloat16) if on_gpu else (192, torch.float32)
    matrix = torch.randn(size, size, device=device, dtype=kind)
    product = torch.empty_like(matrix)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix, out=product)

    def seconds(count: int) -> float:
        started = time.perf_counter()
        multiply(count)
        if on_gpu:
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    seconds(100)  # until clocks and caches are warm
    each = min(seconds(20) for _ in range(10)) / 20  # the least disturbed of ten tries
    count = max(1, round(duration_ms / 1000 / each))
    return lambda: multiply(count)


if __name__ == "__main__":
    main()
