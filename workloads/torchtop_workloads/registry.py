"""The catalog of built-in workloads and their options, for programs and for people.

Standard library only: a launcher reads it without loading torch. The scripts build their command
lines from the same table, so every option is declared once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Value = bool | int | float | str

FAULT_PREFIX = "fault:"
"""What the names of workloads with a known fault begin with; they are not in the catalog."""

_KINDS = {"int": "a whole number", "float": "a number"}
_SWITCH = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}


@dataclass(frozen=True)
class Option:
    """One option of a workload.

    Attributes:
        name: an identifier (``pin_memory``); on a command line also with dashes.
        type: ``int``, ``float``, ``bool`` or ``str``.
        default: the value when it is not given; None where the help says what happens then.
        help: one line, with the unit.
        choices: the values allowed for a ``str``; empty means any.
        minimum: the smallest number allowed; None means any.
        cpu_default: the default on a CPU where it differs: sizes are scaled down there.
        per_rank: whether the default is for one rank and grows with the number of ranks.
    """

    name: str
    type: str
    default: Value | None
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    cpu_default: Value | None = None
    per_rank: bool = False

    @property
    def flag(self) -> str:
        """The option on a command line, such as ``--pin-memory``."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str) -> Value:
        """Read a value as a person writes it.

        Raises:
            ValueError: with one line that says what the value must be.
        """
        if self.type == "bool":
            return self._switch(text)
        if self.type == "str":
            return self._word(text)
        return self._number(text)

    def default_for(self, device: str, world_size: int) -> Value | None:
        """The default on a device type (``cuda`` or ``cpu``) for that many ranks."""
        value = self.default
        if device == "cpu" and self.cpu_default is not None:
            value = self.cpu_default
        if self.per_rank and isinstance(value, int):
            return value * world_size
        return value

    def default_text(self) -> str:
        """The default in words, for a help text; empty where the help says it already."""
        if self.default is None:
            return ""
        words = _shown(self.default)
        if self.cpu_default is not None:
            words += f" on a GPU, {_shown(self.cpu_default)} on a CPU"
        return words + (", for each rank" if self.per_rank else "")

    def _switch(self, text: str) -> bool:
        value = _SWITCH.get(text.strip().lower())
        if value is None:
            raise ValueError(f"{self.name} must be on or off, not {text!r}")
        return value

    def _word(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name} must be {' or '.join(self.choices)}, not {text!r}")
        if not text:
            raise ValueError(f"{self.name} must not be empty")
        return text

    def _number(self, text: str) -> Value:
        wanted = _KINDS[self.type]
        try:
            value = int(text) if self.type == "int" else float(text)
        except ValueError:
            raise ValueError(f"{self.name} must be {wanted}, not {text!r}") from None
        if not math.isfinite(value):
            raise ValueError(f"{self.name} must be {wanted}, not {text!r}")
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"{self.name} must be at least {self.minimum:g}, not {text}")
        return value


@dataclass(frozen=True)
class Workload:
    """One built-in training script.

    Attributes:
        name: what a person types.
        module: its import path, for ``torchrun -m``.
        summary: what it trains, in one line.
        teaches: the bottleneck that it demonstrates, in one line.
        options: its options, in the order of its help.
        devices: the types of device that it runs on.
    """

    name: str
    module: str
    summary: str
    teaches: str
    options: tuple[Option, ...]
    devices: tuple[str, ...] = ("cuda", "cpu")

    @property
    def path(self) -> Path:
        """The script's file, which also runs by path."""
        return Path(__file__).with_name(self.module.rpartition(".")[2] + ".py")

    def check(
        self, values: Mapping[str, Value | None], world_size: int, device: str = "cuda"
    ) -> None:
        """Check what depends on where it runs.

        Args:
            values: parsed options by name; an option that is missing or None takes its default.
            world_size: the number of ranks.
            device: the type of device, ``cuda`` or ``cpu``.

        Raises:
            ValueError: with one line that says what to change.
        """
        if device not in self.devices:
            raise ValueError("this needs a GPU: it cannot happen on a CPU")
        parallel = values.get("parallel") or "ddp"
        if parallel != "ddp" and world_size > 1:
            raise ValueError(
                f"parallel={parallel} runs in one process, not {world_size}: start one process, "
                "or use parallel=ddp"
            )
        batch = values.get("batch")
        if batch is None:
            (option,) = (option for option in self.options if option.name == "batch")
            batch = option.default_for("cuda", world_size)
        if isinstance(batch, int) and batch % world_size:
            raise ValueError(
                f"batch {batch} cannot be split evenly over {world_size} ranks: "
                f"use a multiple of {world_size}"
            )


def find(name: str) -> Workload:
    """The workload of that name: of the catalog, or of `faults`.

    Raises:
        KeyError: there is none.
    """
    if name.startswith(FAULT_PREFIX):
        from torchtop_workloads import faults

        return faults.workload(name[len(FAULT_PREFIX) :])
    return {workload.name: workload for workload in WORKLOADS}[name]


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _batch(default: int, cpu_default: int | None = None, *, per_rank: bool = True) -> Option:
    help_text = "samples in a step over all ranks together"
    return Option("batch", "int", default, help_text, (), 1, cpu_default, per_rank)


def _loading(workers: int, *, data: str) -> tuple[Option, ...]:
    choices = ("files", "memory") if data == "files" else ("memory",)
    options = (
        Option(
            "workers", "int", workers, "loader processes for each rank; data=memory: 0", minimum=0
        ),
        Option("pin_memory", "bool", True, "page-locked host memory for batches (GPU only)"),
        Option("data", "str", data, "read files, or make the batches once in memory", choices),
    )
    if data != "files":
        return options
    where = "folder with cifar-10-batches-py (default: torchtop's cache); made up where absent"
    size = "images to make up where the real files are absent"
    return (
        *options,
        Option("data_dir", "str", None, where),
        Option("synthetic_size", "int", 50000, size, minimum=10),
    )


def _model(*, amp: bool = False, channels_last: bool | None = False) -> tuple[Option, ...]:
    layout = () if channels_last is None else (_channels_last(channels_last),)
    return (
        Option("compile", "bool", False, "run the model through torch.compile"),
        Option("amp", "bool", amp, "compute in bfloat16 (autocast)", cpu_default=_off(amp)),
        *layout,
        Option(
            "parallel",
            "str",
            "ddp",
            "DistributedDataParallel; dp or single: one process",
            ("ddp", "dp", "single"),
        ),
    )


def _channels_last(default: bool) -> Option:
    text = "keep images and convolutions in channels-last memory layout"
    return Option("channels_last", "bool", default, text, cpu_default=_off(default))


def _off(default: bool) -> bool | None:
    """The settings that speed up a GPU's tensor cores are off on a CPU."""
    return False if default else None


_RUN = (
    Option("steps", "int", None, "optimizer steps, over as many epochs as it takes", minimum=1),
    Option("epochs", "int", 90, "passes over the data, where steps is not given", minimum=1),
    Option("seed", "int", 0, "seed of the weights, the data and their order", minimum=0),
    Option("lr", "float", 0.01, "learning rate of SGD", minimum=0),
)


def _conv_stack(depth: int, cpu_depth: int) -> tuple[Option, ...]:
    return (
        Option("channels", "int", 512, "width of the convolutions", (), 1, 64),
        Option("depth", "int", depth, "number of convolutions", (), 1, cpu_depth),
        Option("image_size", "int", 56, "height and width of the images, pixels", (), 8, 32),
    )


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "resnet50-cifar10",
        "torchtop_workloads.resnet50_cifar10",
        "ResNet-50 on CIFAR-10 files, the textbook DDP script",
        "what an ordinary script spends its time on: small images seldom fill a large GPU",
        (_batch(256, per_rank=False), *_loading(4, data="files"), *_model(), *_RUN),
    ),
    Workload(
        "compute-heavy",
        "torchtop_workloads.compute_heavy",
        "a stack of wide convolutions on batches that are on the GPU already",
        "healthy: the GPU computes nearly all the time and is the limit",
        (
            _batch(64, 16),
            *_loading(0, data="memory"),
            *_model(amp=True, channels_last=True),
            *_RUN,
            *_conv_stack(12, 4),
        ),
    ),
    Workload(
        "slow-loader",
        "torchtop_workloads.slow_loader",
        "a small network on CIFAR-10 files that are slow to read",
        "data stall: the GPU waits because the loader workers cannot keep up",
        (
            _batch(128),
            *_loading(4, data="files"),
            *_model(),
            *_RUN,
            Option("item_ms", "float", 2.0, "extra time to read one image, ms", minimum=0),
        ),
    ),
    Workload(
        "comm-heavy",
        "torchtop_workloads.comm_heavy",
        "a wide perceptron with large gradients and a small batch",
        "exposed communication: the all-reduce takes longer than the backward that could hide it",
        (
            _batch(32, 4),
            *_loading(0, data="memory"),
            *_model(channels_last=None),
            *_RUN,
            Option("width", "int", 8192, "width of the layers", (), 1, 1536),
            Option("depth", "int", 8, "number of layers", minimum=1),
            Option("bucket_mb", "int", 25, "size of DDP's gradient buckets, MiB", (), 1, 1024),
        ),
    ),
    Workload(
        "straggler",
        "torchtop_workloads.straggler",
        "a stack of convolutions in which one rank is slower than the others",
        "straggler wait: every rank waits in the all-reduce for the slowest",
        (
            _batch(64, 8),
            *_loading(0, data="memory"),
            *_model(amp=True, channels_last=True),
            *_RUN,
            *_conv_stack(6, 2),
            Option("slow_rank", "int", 1, "the slow rank; the last one if out of range", minimum=0),
            Option("delay_ms", "float", 30.0, "how much slower it is in each step, ms", minimum=0),
            Option(
                "slow_phase",
                "str",
                "optimizer",
                "where it is slow: optimizer, data, host (pauses), forward, backward (more work)",
                ("optimizer", "data", "forward", "backward", "host"),
            ),
        ),
    ),
    Workload(
        "tiny-kernels",
        "torchtop_workloads.tiny_kernels",
        "a deep stack of small layers, each a few microseconds of work for a GPU",
        "launch-bound: the host cannot issue kernels as fast as the GPU executes them",
        (
            _batch(128, 32),
            *_loading(0, data="memory"),
            *_model(channels_last=None),
            *_RUN,
            Option("width", "int", 128, "width of the layers", (), 1, 64),
            Option("depth", "int", 150, "number of layers", (), 1, 100),
        ),
    ),
    Workload(
        "sync-every-step",
        "torchtop_workloads.sync_every_step",
        "a perceptron behind many small operations, whose loss is read in every step",
        "hidden synchronisation: reading a result makes the host lose its lead over the GPU",
        (
            _batch(12288, 1024),
            *_loading(0, data="memory"),
            *_model(amp=True, channels_last=None),
            *_RUN,
            Option("features", "int", 32, "numbers in a row", minimum=1),
            Option("ops", "int", 300, "small operations before the layers", (), 0, 100),
            Option("width", "int", 4096, "width of the layers", (), 1, 256),
            Option("depth", "int", 4, "number of layers", minimum=1),
            Option("read_every", "int", 1, "steps between two readings of the loss", minimum=1),
        ),
    ),
)
"""The built-in workloads, in the order of the keys 1, 2, ... of the viewer."""
