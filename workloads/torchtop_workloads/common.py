"""What the built-in training scripts share: processes and devices, not the training loop.

Each script keeps its own loop in sight. This module starts the process group, picks the device,
reads the options, wraps the model, and tells how far the run is.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

from torchtop_workloads import arguments, registry

try:
    from torchtop import log
except ImportError:  # another interpreter, which has no torchtop

    def log(**scalars: object) -> None:
        """Record scalars of the current step; a no-op without torchtop."""


__all__ = [
    "Batch",
    "Job",
    "Report",
    "fail",
    "first_batches",
    "job",
    "log",
    "random_batches",
    "resident_loader",
    "tell",
    "wrap",
]

Batch = tuple[Tensor, Tensor]
Hook = Callable[[], None]

PRINT_EVERY = 50
"""Steps between two progress lines: reading the loss for one waits for the GPU."""


@dataclass(frozen=True)
class Job:
    """One rank of a run.

    Attributes:
        rank: this process among all.
        local_rank: this process among those of its host.
        world_size: number of processes.
        device: where this rank computes.
        batch: samples that this rank takes in each step.
        options: every option of the workload by name, defaults filled in.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    batch: int
    options: SimpleNamespace

    @property
    def memory_format(self) -> torch.memory_format:
        """The layout of batches of images."""
        if getattr(self.options, "channels_last", False):
            return torch.channels_last
        return torch.preserve_format

    @property
    def pin_memory(self) -> bool:
        """Whether a loader should page-lock its batches: it only helps copies to a GPU."""
        return bool(self.options.pin_memory) and self.device.type == "cuda"

    def to_device(self, batch: Batch) -> Batch:
        """A batch on the device, copied without waiting; as it is where it lies there."""
        samples, labels = batch
        return (
            _laid_out(samples, self.memory_format).to(self.device, non_blocking=True),
            labels.to(self.device, non_blocking=True),
        )

    def autocast(self) -> torch.autocast:
        """The context in which forward runs: bfloat16 with ``amp``, else plain."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.amp)

    def say(self, text: str) -> None:
        """Print a line, once for all ranks."""
        if self.rank == 0:
            print(text, flush=True)


@contextmanager
def job(name: str, argv: Sequence[str] | None = None) -> Iterator[Job]:
    """Set up this process for a workload, and tear it down after.

    The environment is torchrun's (``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``); without it this is
    one plain process, without DDP. ``TORCHTOP_DEVICE`` is ``cuda``, ``cpu`` or, by default,
    ``auto``.

    Args:
        name: the workload's name in the catalog.
        argv: its options; those of this process when omitted.

    Raises:
        SystemExit: with status 2 and one line on stderr when the options do not fit.
    """
    workload = registry.find(name)
    given = arguments.parse(workload, sys.argv[1:] if argv is None else argv)
    rank, local_rank, world_size = (
        int(os.environ.get(key, default))
        for key, default in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))
    )
    device = _device(local_rank)
    try:
        workload.check(given, world_size, device.type)
    except ValueError as error:
        fail(f"{name}: {error}", status=2)
    options = _fill_in(workload, given, device, world_size)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(options.seed)
    if options.parallel == "ddp" and "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    made = Job(rank, local_rank, world_size, device, options.batch // world_size, options)
    made.say(f"{name}: {world_size} x {_device_name(device)}, batch {options.batch} in all")
    yield made
    # Not in a `finally`: after an error on this rank the others may hang in a collective, and a
    # teardown that waits for them would hide the error.
    if dist.is_initialized():
        dist.destroy_process_group()


def _fill_in(
    workload: registry.Workload,
    given: dict[str, registry.Value | None],
    device: torch.device,
    world_size: int,
) -> SimpleNamespace:
    """Every option by name: as given, else its default."""
    values = {
        option.name: option.default_for(device.type, world_size)
        if given[option.name] is None
        else given[option.name]
        for option in workload.options
    }
    if values["data"] == "memory" and given["workers"] is None:
        values["workers"] = 0  # batches that exist already need no one to load them
    return SimpleNamespace(**values)


def _device(local_rank: int) -> torch.device:
    wanted = os.environ.get("TORCHTOP_DEVICE", "auto")
    if wanted not in ("auto", "cuda", "cpu"):
        fail(f"TORCHTOP_DEVICE must be auto, cuda or cpu, not {wanted!r}", status=2)
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    visible = torch.cuda.device_count()
    if not torch.cuda.is_available():
        fail("torch sees no CUDA device: use TORCHTOP_DEVICE=cpu", status=2)
    if local_rank >= visible:
        fail(f"local rank {local_rank} has no GPU, {visible} visible: start fewer processes", 2)
    return torch.device("cuda", local_rank)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def wrap(model: nn.Module, job: Job, **ddp_options: Any) -> nn.Module:
    """Move a model to the rank's device, and average its gradients over the ranks.

    Args:
        model: built alike on all ranks.
        job: whose device and options.
        **ddp_options: further arguments of DistributedDataParallel.
    """
    model = model.to(job.device)
    if job.memory_format is torch.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if dist.is_initialized():
        device_ids = [job.local_rank] if job.device.type == "cuda" else None
        model = DistributedDataParallel(model, device_ids=device_ids, **ddp_options)
    elif job.options.parallel == "dp":
        model = nn.DataParallel(model)
    if job.options.compile:
        model.compile()
    return model


class ResidentBatches(Dataset[Batch]):
    """Batches made once and handed out again and again."""

    def __init__(self, batches: Sequence[Batch], length: int, fetch: Hook | None) -> None:
        self._batches = batches
        self._length = length
        self._fetch = fetch

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        if self._fetch is not None:
            self._fetch()
        return self._batches[index % len(self._batches)]


def resident_loader(
    batches: Sequence[Batch],
    job: Job,
    *,
    length: int = 500,
    fetch: Hook | None = None,
) -> DataLoader[Batch]:
    """A loader of batches that exist already, so that compute is measured and not loading.

    Without loader workers the batches lie on the device. With workers they stay in host memory and
    pass through the workers, since a CUDA tensor must not enter a forked process.

    Args:
        batches: pairs of tensors (samples first), as many as memory allows.
        job: whose device and loader options.
        length: batches in an epoch.
        fetch: called for each batch, where it is loaded.
    """
    workers = job.options.workers
    if workers == 0:
        batches = [
            (_laid_out(samples, job.memory_format).to(job.device), labels.to(job.device))
            for samples, labels in batches
        ]
    return DataLoader(
        ResidentBatches(batches, length, fetch),
        batch_size=None,  # the items are batches already
        num_workers=workers,
        pin_memory=job.pin_memory and workers > 0,
        persistent_workers=workers > 0,
    )


def _laid_out(samples: Tensor, memory_format: torch.memory_format) -> Tensor:
    return samples.to(memory_format=memory_format) if samples.dim() == 4 else samples


def first_batches(
    dataset: Dataset[Any], indices: Iterable[Any], job: Job, *, count: int = 4
) -> list[Batch]:
    """The first batches that a loader would make, without a loader.

    Args:
        dataset: of (sample, label) pairs.
        indices: which samples, in order; a sampler, say.
        job: whose batch size.
        count: number of batches at most.
    """
    chosen = list(itertools.islice(indices, count * job.batch))
    whole = len(chosen) - len(chosen) % job.batch
    return [
        default_collate([dataset[index] for index in chosen[start : start + job.batch]])
        for start in range(0, whole, job.batch)
    ]


def random_batches(shape: Sequence[int], job: Job, *, count: int = 4) -> list[Batch]:
    """Batches of noise around one pattern for each of ten classes, so that a loss can fall.

    Args:
        shape: of one sample.
        job: whose batch size and seed; each rank gets other batches.
        count: number of batches.

    Returns:
        Pairs of float32 samples (batch, *shape) and int64 labels (batch,), on the host.
    """
    generator = torch.Generator().manual_seed(job.options.seed)
    patterns = torch.randn(10, *shape, generator=generator)
    generator.manual_seed(job.options.seed + 1 + job.rank)
    batches = []
    for _ in range(count):
        labels = torch.randint(10, (job.batch,), generator=generator)
        noise = torch.randn(job.batch, *shape, generator=generator)
        batches.append((patterns[labels] + noise, labels))
    return batches


class Report:
    """Tells how far the run is: to torchtop how long it will be, and a line now and then.

    Args:
        job: this rank.
        loader: whose length is an epoch.
        **facts: further facts for torchtop, such as ``synthetic_data``.

    Raises:
        SystemExit: the loader has no whole batch.
    """

    def __init__(self, job: Job, loader: DataLoader[Batch], **facts: object) -> None:
        if len(loader) == 0:
            fail(f"the data set is smaller than one batch of {job.options.batch}: lower batch")
        self._job = job
        self._total: int = job.options.steps or job.options.epochs * len(loader)
        self._step = 0
        self._started = self._last = time.perf_counter()
        tell(total_steps=self._total, **facts)
        job.say(f"training for {self._total} steps, {len(loader)} in an epoch")

    def step(self, loss: Tensor | None = None) -> bool:
        """Count a finished step.

        Args:
            loss: read (which waits for the device) only where a line is printed; None where the
                script must never wait for the device.

        Returns:
            Whether it was the last.
        """
        self._step += 1
        done = self._step == self._total
        if self._step % PRINT_EVERY == 0 or done:
            self._print(loss)
        if done:
            seconds = time.perf_counter() - self._started
            self._job.say(f"done: {self._total} steps in {seconds:.1f} s")
        return done

    def _print(self, loss: Tensor | None) -> None:
        if self._job.rank:
            return
        now = time.perf_counter()
        steps = (self._step - 1) % PRINT_EVERY + 1
        milliseconds = (now - self._last) * 1000 / steps
        shown = "" if loss is None else f"  loss {loss.item():.4f}"
        self._job.say(f"step {self._step}/{self._total}{shown}  {milliseconds:.1f} ms a step")
        self._last = now


def tell(**facts: object) -> None:
    """Tell torchtop facts about this script, where it runs under torchtop; else do nothing."""
    runtime = sys.modules.get("_torchtop_runtime")
    receive = getattr(runtime, "tell", None)
    if receive is not None:
        receive(facts)


def fail(message: str, status: int = 1) -> NoReturn:
    """End this process with one line on stderr."""
    print(message, file=sys.stderr, flush=True)
    raise SystemExit(status)
