"""What a faulty training loop is made of: batches, the network, and what goes wrong around it."""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from torchtop_workloads import common, models
from torchtop_workloads.straggler import make_work

AfterStep = Callable[[int, Tensor], None]
"""Called after a step, with its number and loss."""

_LENGTH = 1000
"""Batches in an epoch."""

_GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Loading:
    """What it takes to load one batch, beside the batch; times in ms."""

    wait_ms: float
    compute_ms: float
    slow_every: int
    slow_ms: float

    def __call__(self, index: int) -> None:
        """Take that long for the batch of that index."""
        late = index % self.slow_every == self.slow_every - 1
        wait_ms = self.wait_ms + late * self.slow_ms
        if wait_ms:  # a sleep of no time gives the CPU away
            time.sleep(wait_ms / 1000)
        until = time.perf_counter() + self.compute_ms / 1000
        while time.perf_counter() < until:
            pass


class Batches(Dataset[common.Batch]):
    """A few batches, handed out again and again, each loaded anew."""

    def __init__(self, batches: list[common.Batch], loading: Loading) -> None:
        self._batches = batches
        self._loading = loading

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> common.Batch:
        self._loading(index)
        return self._batches[index % len(self._batches)]


def make_loader(job: common.Job, settings: SimpleNamespace) -> DataLoader[common.Batch]:
    """The loader of one rank, of micro-batches.

    Without workers the batches lie on the device, unless they are to be copied from host memory.
    """
    rows = max(1, job.batch // settings.accumulate)
    # What is beyond the features is copied to the device and never looked at.
    columns = max(settings.features, settings.host_mb * 1_000_000 // (4 * rows))
    on_host = settings.workers > 0 or settings.host_mb > 0
    place = torch.device("cpu") if on_host else job.device
    generator = torch.Generator(place).manual_seed(settings.seed + 1 + job.rank)
    batches = [
        (
            _rows(rows, columns, settings.features, generator),
            torch.randint(10, (rows,), device=place, generator=generator),
        )
        for _ in range(2)
    ]
    late = settings.delay_ms if is_slow(job, settings) and settings.slow_phase == "data" else 0.0
    loading = Loading(
        settings.load_ms + late,
        settings.transform_ms,
        settings.slow_batch_every,
        settings.slow_batch_ms,
    )
    return DataLoader(
        Batches(batches, loading),
        batch_size=None,  # the items are batches already
        num_workers=settings.workers,
        pin_memory=settings.pin_memory and settings.workers > 0 and job.device.type == "cuda",
        persistent_workers=settings.workers > 0,
    )


def _rows(count: int, columns: int, features: int, generator: torch.Generator) -> Tensor:
    """Rows of noise, which is only drawn where it is looked at."""
    rows = torch.ones(count, columns, device=generator.device)
    rows[:, :features].normal_(generator=generator)
    return rows


def make_network(job: common.Job, settings: SimpleNamespace) -> nn.Module:
    """The network, on the rank's device."""
    with job.device:
        network = models.fronted_perceptron(
            settings.features,
            0,
            settings.width,
            settings.depth,
            settings.batch_norm,
            settings.shared,
        )
    if settings.graph:
        if job.device.type != "cuda":
            common.fail("graph=on needs a GPU", 2)
        sample = torch.randn(job.batch, settings.features, device=job.device)
        graphed: Any = torch.cuda.make_graphed_callables(network, (sample,))
        return cast(nn.Module, graphed)
    return network


def prepare(rows: Tensor, ops: int) -> Tensor:
    """Rows after so many tiny operations, which backward does not go through."""
    with torch.no_grad():
        prepared: Tensor = models.TinyOps(ops)(rows)
    return prepared


def make_optimizer(model: nn.Module, settings: SimpleNamespace) -> torch.optim.Optimizer:
    """The optimizer that the settings name."""
    if settings.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3)
    fused = settings.optimizer == "adam-fused"
    return torch.optim.Adam(model.parameters(), lr=1e-5, foreach=False, fused=fused)


def is_slow(job: common.Job, settings: SimpleNamespace) -> bool:
    """Whether this rank is the slow one in every step."""
    slow = settings.slow_rank
    if slow in ("random", "all"):
        return False
    if not slow.isdigit():
        common.fail(f"slow_rank must be a number, random or all, not {slow!r}", 2)
    return job.rank == min(int(slow), job.world_size - 1)


class Slowness:
    """What makes a rank slow in forward or backward.

    Args:
        job: this rank.
        settings: its `slow_rank`, `slow_phase` and `delay_ms`.
    """

    def __init__(self, job: common.Job, settings: SimpleNamespace) -> None:
        self._world_size = job.world_size
        self._rank = job.rank
        self._phase = settings.slow_phase
        self._rotates = settings.slow_rank == "random"
        self._turns = random.Random(settings.seed)  # the same on all ranks
        shared = settings.slow_rank == "all"
        self._always = shared or is_slow(job, settings)
        delay_ms = settings.delay_ms / (job.world_size if shared else 1)
        computes = self._phase in ("forward", "backward") and (self._always or self._rotates)
        self._seconds = delay_ms / 1000
        self._work = make_work(job.device, delay_ms if computes else 0.0)
        self._now = False

    def in_forward(self) -> None:
        """At the start of a forward pass."""
        turn = self._turns.randrange(self._world_size) == self._rank
        self._now = turn if self._rotates else self._always
        if self._now and self._phase == "forward":
            self._work()
        elif self._now and self._phase == "host":
            time.sleep(self._seconds)

    def in_backward(self, logits: Any) -> None:
        """Before a backward pass: the work is done at its start."""
        if self._now and self._phase == "backward":
            logits.register_hook(lambda _gradient: self._work())


class Hoard:
    """Asks for memory so that the caching allocator must give back what it keeps, and ask anew.

    Each block is larger than the one before, so that none fits into what the last has left, and
    all of them together do not fit below the limit.

    Args:
        device: a GPU.
    """

    _SIZES = tuple(2 * _GIGABYTE + part * (_GIGABYTE >> 2) for part in range(6))
    _WARM_UP = 5
    """Calls after which the model has had all the memory that it needs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._calls = 0
        torch.cuda.reset_peak_memory_stats(device)

    def __call__(self) -> None:
        """Take and give back all blocks, one after the other."""
        self._calls += 1
        if self._calls < self._WARM_UP:
            return
        if self._calls == self._WARM_UP:
            limit = torch.cuda.max_memory_reserved(self._device) + self._SIZES[-1]
            total = torch.cuda.get_device_properties(self._device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), self._device)
        torch.cuda.empty_cache()
        for size in self._SIZES:
            torch.empty(size, dtype=torch.uint8, device=self._device)

    def end(self) -> None:
        """Lift the limit."""
        torch.cuda.set_per_process_memory_fraction(1.0, self._device)


def after_step(job: common.Job, settings: SimpleNamespace, stack: ExitStack) -> list[AfterStep]:
    """What happens after each step, as the settings say; `stack` undoes it."""
    calls: list[AfterStep] = []
    if settings.item:
        calls.append(lambda _step, loss: _read(loss))
    if settings.save_every and job.rank == 0:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchtop-")))
        state = torch.zeros(settings.save_mb * 250_000, device=job.device)
        every = settings.save_every
        calls.append(lambda step, _loss: _save(step, every, state, folder / "checkpoint.pt"))
    if settings.gc_every and is_slow(job, settings):
        heap = _heap(settings.gc_objects)
        calls.append(lambda step, _loss: _collect(step, settings.gc_every, heap))
    return calls


def _read(loss: Tensor) -> None:
    loss.item()


def _save(step: int, every: int, state: Tensor, path: Path) -> None:
    if step % every == every - 1:
        torch.save({"state": state}, path)


def _collect(step: int, every: int, _heap: list[list[int]]) -> None:
    if step % every == every - 1:
        gc.collect()


def _heap(count: int) -> list[list[int]]:
    """So many objects that the collector must look at, each time."""
    gc.disable()  # it would go through the growing heap again and again
    try:
        return [[index] for index in range(count)]
    finally:
        gc.enable()


def endless(loader: DataLoader[common.Batch]) -> Iterator[common.Batch]:
    """Epoch after epoch."""
    while True:
        yield from loader


def no_sync(model: nn.Module, skip: bool) -> AbstractContextManager[Any]:
    """A context in which DDP does not average gradients, where that is to be skipped."""
    if skip and isinstance(model, nn.parallel.DistributedDataParallel):
        quiet: AbstractContextManager[Any] = model.no_sync()
        return quiet
    return nullcontext()
