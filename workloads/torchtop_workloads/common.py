"""What the built-in training scripts share: processes and devices, not the training loop.

Each script keeps its own loop in sight. This module starts the process group, picks the device,
reads the options, wraps the model, and tells how far the run is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchtop_workloads import arguments, registry
from torchtop_workloads.batches import (
    Batch,
    first_batches,
    laid_out,
    random_batches,
    resident_loader,
)
from torchtop_workloads.ending import fail
from torchtop_workloads.report import Report, tell

try:
    from torchtop import log
except ImportError:  # another interpreter, which has no torchtop

    def log(**scalars: object) -> None:
        """Record scalars of the current step; a no-op without torchtop."""


__all__ = [
    "Batch",
    "DataError",
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


_LR_BATCH = 256
"""The batch that learning rates are told for: Goyal et al., arXiv 1706.02677."""


class DataError(RuntimeError):
    """A data set cannot be read; the message is one line that says what to do.

    It may be raised in a loader's worker, and ends the run with its line alone.
    """


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
            laid_out(samples, self.memory_format).to(self.device, non_blocking=True),
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
        SystemExit: with one line on stderr, and status 2 when the options do not fit, or 1 when
            the data cannot be read.
    """
    workload = registry.find(name)
    given = arguments.parse(workload, sys.argv[1:] if argv is None else argv)
    rank, local_rank, world_size = (
        int(os.environ.get(key, default))
        for key, default in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))
    )
    device = _device(local_rank)
    gpus = torch.cuda.device_count() if device.type == "cuda" else None
    try:
        workload.check(given, world_size, device.type, gpus)
    except ValueError as error:
        fail(f"{name}: {error}", status=2)
    batch, places = workload.batch(given, world_size, device.type, gpus)
    options = _fill_in(workload, {**given, "batch": batch}, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(options.seed)
    if options.parallel == "ddp" and "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    made = Job(rank, local_rank, world_size, device, batch // world_size, options)
    made.say(f"{name}: {places} x {_device_name(device)}, batch {batch} in all")
    try:
        yield made
    except DataError as error:
        fail(_last_words(error))
    # Not in a `finally`: after an error on this rank the others may hang in a collective, and a
    # teardown that waits for them would hide the error.
    if dist.is_initialized():
        dist.destroy_process_group()


def _fill_in(
    workload: registry.Workload, given: dict[str, registry.Value | None], device: torch.device
) -> SimpleNamespace:
    """Every option by name: as given, else its default."""
    values = {
        option.name: option.default_for(device.type, 1)
        if given[option.name] is None
        else given[option.name]
        for option in workload.options
    }
    if values["data"] == "memory" and given["workers"] is None:
        values["workers"] = 0  # batches that exist already need no one to load them
    options = SimpleNamespace(**values)
    if values.get("scale_lr"):
        options.lr *= options.batch / _LR_BATCH
    return options


def _last_words(error: DataError) -> str:
    """The line of an error, which a loader's worker sends with its traceback around it."""
    name = f"{DataError.__name__}: "
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rpartition(name)[2] if lines else name


def _device(local_rank: int) -> torch.device:
    wanted = os.environ.get("TORCHTOP_DEVICE", "auto")
    if wanted not in ("auto", "cuda", "cpu"):
        fail(f"TORCHTOP_DEVICE must be auto, cuda or cpu, not {wanted!r}", status=2)
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    visible = torch.cuda.device_count()
    if not torch.cuda.is_available():
        fail("torch sees no CUDA device: use TORCHTOP_DEVICE=cpu", status=2)
    if os.environ.get("TORCHTOP_SHARE_GPUS") == "1":
        # NCCL refuses two ranks on one GPU, unless it takes them for those of two hosts.
        apart = {"NCCL_HOSTID": f"rank {local_rank}", "NCCL_SOCKET_IFNAME": "lo"}
        os.environ.update(apart, NCCL_IB_DISABLE="1")
        local_rank %= visible
    if local_rank >= visible:
        fail(f"local rank {local_rank} has no GPU, {visible} visible: start fewer processes", 2)
    return torch.device("cuda", local_rank)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def wrap(model: nn.Module, job: Job, **ddp_options: Any) -> nn.Module:
    """Move a model to the rank's device, and train it in parallel as the options say.

    Args:
        model: built alike on all ranks.
        job: whose device and options.
        **ddp_options: further arguments of DistributedDataParallel, which averages the gradients
            over the ranks.
    """
    model = model.to(job.device)
    if job.memory_format is torch.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if dist.is_initialized():
        device_ids = [job.device.index] if job.device.type == "cuda" else None
        model = DistributedDataParallel(model, device_ids=device_ids, **ddp_options)
    elif job.options.parallel == "dp":
        model = nn.DataParallel(_Autocast(model, job))
    return _compiled(model) if job.options.compile else model


class _Autocast(nn.Module):
    """A model that enters autocast itself: DataParallel's threads do not inherit its type."""

    def __init__(self, model: nn.Module, job: Job) -> None:
        super().__init__()
        self.model = model
        self._type = job.device.type
        self._enabled = job.options.amp

    def forward(self, *inputs: Tensor) -> Any:
        with torch.autocast(self._type, torch.bfloat16, enabled=self._enabled):
            return self.model(*inputs)


def _compiled(model: nn.Module) -> nn.Module:
    if not hasattr(torch, "compile"):
        fail(f"PyTorch {torch.__version__} has no torch.compile, which came with 2.0", status=2)
    try:
        if not hasattr(model, "compile"):  # it came after torch.compile
            return torch.compile(model)  # type: ignore[return-value]
        model.compile()
    except RuntimeError as error:  # a Python that this release cannot compile for
        fail(f"compile: {str(error).splitlines()[0]}", status=2)
    return model
