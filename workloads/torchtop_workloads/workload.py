"""What is known of a built-in workload, and what can be wrong with its options where it shall run.

Standard library only: a launcher reads the catalog without loading torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchtop_workloads.options import Option, Value


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
        keyed: whether a digit of the viewer starts it; the other digits are the user's own.
    """

    name: str
    module: str
    summary: str
    teaches: str
    options: tuple[Option, ...]
    devices: tuple[str, ...] = ("cuda", "cpu")
    keyed: bool = True

    @property
    def path(self) -> Path:
        """The script's file, which also runs by path."""
        return Path(__file__).with_name(self.module.rpartition(".")[2] + ".py")

    def check(
        self,
        values: Mapping[str, Value | None],
        world_size: int,
        device: str = "cuda",
        gpus: int | None = None,
    ) -> None:
        """Check what depends on where it runs.

        Args:
            values: parsed options by name; an option that is missing or None takes its default.
            world_size: the number of ranks.
            device: the type of device, ``cuda`` or ``cpu``.
            gpus: how many GPUs a single process sees; only ``parallel=dp`` uses more than one.

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
        if parallel == "dp" and values.get("compile"):
            raise ValueError("parallel=dp cannot be compiled: use parallel=ddp, or compile=off")
        if values.get("batch") is not None and values.get("batch_per_gpu") is not None:
            raise ValueError("batch and batch_per_gpu say the same: give one of them")
        folder = values.get("data_dir")
        if isinstance(folder, str) and not Path(folder).expanduser().is_dir():
            raise ValueError(f"data_dir {folder} is not a folder: give one that exists")
        self._check_heads(values, device)
        batch, places = self.batch(values, world_size, device, gpus)
        if batch % places:
            what = "GPUs" if parallel == "dp" else "ranks"
            raise ValueError(
                f"batch {batch} cannot be split evenly over {places} {what}: "
                f"use a multiple of {places}"
            )

    def _check_heads(self, values: Mapping[str, Value | None], device: str) -> None:
        size = {o.name: o.default_for(device, 1) for o in self.options}
        size |= {name: value for name, value in values.items() if value is not None}
        width, heads = size.get("width"), size.get("heads")
        if isinstance(width, int) and isinstance(heads, int) and width % heads:
            raise ValueError(f"width {width} cannot be split over {heads} heads: use a multiple")

    def defaults(
        self,
        given: Mapping[str, Value | None],
        device: str,
        world_size: int,
        gpus: int | None = None,
    ) -> dict[str, Value | None]:
        """What all options are in a job, where `given` does not say otherwise; None: see its help.

        Args:
            given: the options that were set.
            device: the type of device that it runs on.
            world_size: the number of ranks.
            gpus: how many GPUs a single process sees.
        """
        values = {option.name: option.default_for(device, 1) for option in self.options}
        if "batch" in values:
            values["batch"], _ = self.batch(given, world_size, device, gpus)
        if {**values, **given}.get("data") == "memory":
            values["workers"] = 0  # batches that exist already need no one to load them
        return values

    def batch(
        self,
        values: Mapping[str, Value | None],
        world_size: int,
        device: str = "cuda",
        gpus: int | None = None,
    ) -> tuple[int, int]:
        """Samples in a step over all devices together, and over how many devices they are split.

        Args:
            values: as for `check`, and so are the others.
            world_size: the number of ranks.
            device: the type of device.
            gpus: how many GPUs a single process sees.
        """
        places = world_size
        if values.get("parallel") == "dp" and device == "cuda":
            places = gpus or 1
        given, each = values.get("batch"), values.get("batch_per_gpu")
        if given is None and each is not None:
            return int(each) * places, places
        if given is None:
            (option,) = (option for option in self.options if option.name == "batch")
            given = option.default_for(device, places)
        return int(given or 1), places
