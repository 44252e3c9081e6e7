"""Where a workload will run: device, number of ranks, and which GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchtop.commands.errors import UsageError
from torchtop.devices.facts import query_gpus
from torchtop.devices.model import GpuFact, GpuInventory
from torchtop.launch.interpreter import Interpreter
from torchtop.launch.preflight import may_share_gpus
from torchtop.launch.spec import Device

_CPU_RANKS = 2
"""Ranks on a CPU when nobody says: enough for communication to exist."""


@dataclass(frozen=True)
class Wish:
    """What was asked for; None where nothing was said.

    Attributes:
        device: ``auto``, ``cuda`` or ``cpu``.
        gpus: how many GPUs, or ``all``.
        gpu_ids: NVML indices.
        nproc: ranks on this node.
    """

    device: Literal["auto", "cuda", "cpu"] = "auto"
    gpus: int | Literal["all"] | None = None
    gpu_ids: tuple[int, ...] | None = None
    nproc: int | None = None


@dataclass(frozen=True)
class Placement:
    """What it comes to on this machine; `note` is worth telling when there is one."""

    device: Device
    nproc: int
    gpu_uuids: tuple[str, ...] = ()
    note: str | None = None


def place(
    wish: Wish, interpreter: Interpreter | None, inventory: GpuInventory | None = None
) -> Placement:
    """Decide where to run.

    Args:
        wish: what was asked for.
        interpreter: whose PyTorch will train; None where that is not known.
        inventory: the GPUs, when they are known already.

    Raises:
        UsageError: this machine cannot do that.
    """
    _check_counts(wish)
    named = wish.gpus is not None or wish.gpu_ids is not None
    if wish.device == "cpu":
        if named:
            raise UsageError("--gpus and --gpu-ids do not go with --device cpu; ranks: --nproc N")
        return _on_cpu(wish)
    inventory = inventory or query_gpus()
    visible = visible_gpus(inventory)
    wanted = wish.device == "cuda" or named
    if not visible:
        reason = inventory.error or "CUDA_VISIBLE_DEVICES hides all GPUs"
        if wanted:
            raise UsageError(f"no GPU to run on ({reason}); on the CPU: --device cpu --nproc 2")
        return _on_cpu(wish)
    if interpreter and interpreter.torch_root is not None and interpreter.cuda_version is None:
        if wanted:
            raise UsageError(
                f"PyTorch {interpreter.torch_version} is a CPU build; "
                "install one with CUDA, or use --device cpu"
            )
        return _on_cpu(wish, "this PyTorch is a CPU build, so the GPUs stay idle")
    return _on_gpus(wish, visible)


def visible_gpus(inventory: GpuInventory) -> list[GpuFact]:
    """The GPUs that can be used: those that an inherited CUDA_VISIBLE_DEVICES leaves."""
    return _visible(inventory.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _check_counts(wish: Wish) -> None:
    if wish.nproc is not None and wish.nproc < 1:
        raise UsageError(f"--nproc {wish.nproc}: there must be at least 1 rank")
    if isinstance(wish.gpus, int) and wish.gpus < 1:
        raise UsageError(f"--gpus {wish.gpus}: at least 1; for the CPU: --device cpu --nproc N")
    if wish.gpus is not None and wish.gpu_ids is not None:
        raise UsageError("give --gpus or --gpu-ids, not both")


def _on_cpu(wish: Wish, note: str | None = None) -> Placement:
    return Placement("cpu", wish.nproc or min(_CPU_RANKS, os.cpu_count() or 1), (), note)


def _on_gpus(wish: Wish, visible: Sequence[GpuFact]) -> Placement:
    chosen = list(visible)
    if wish.gpu_ids is not None:
        by_index = {gpu.index: gpu for gpu in visible}
        missing = [i for i in wish.gpu_ids if i not in by_index]
        if missing:
            raise UsageError(
                f"--gpu-ids {_join(wish.gpu_ids)}: there is no GPU {_join(missing)} here; "
                f"there are {_join(by_index)}"
            )
        if len(set(wish.gpu_ids)) < len(wish.gpu_ids):
            raise UsageError(f"--gpu-ids {_join(wish.gpu_ids)}: each GPU once")
        chosen = [by_index[i] for i in wish.gpu_ids]
    elif isinstance(wish.gpus, int):
        if wish.gpus > len(visible):
            raise UsageError(f"--gpus {wish.gpus}: this machine has {_count(visible)}")
        chosen = chosen[: wish.gpus]
    if wish.nproc is not None:
        if wish.nproc > len(chosen) and not may_share_gpus():
            raise UsageError(
                f"--nproc {wish.nproc}: one rank needs one GPU, and there are {len(chosen)}"
            )
        chosen = chosen[: wish.nproc]
    uuids = tuple(gpu.uuid for gpu in chosen if gpu.uuid)
    ranks = max(wish.nproc or 0, len(chosen))
    return Placement("cuda", ranks, uuids if len(uuids) == len(chosen) else ())


def _visible(gpus: Sequence[GpuFact], restriction: str | None) -> list[GpuFact]:
    """The GPUs that an inherited CUDA_VISIBLE_DEVICES leaves, in its order.

    As CUDA reads it: indices or (beginnings of) UUIDs, up to the first that names none.
    """
    if restriction is None:
        return list(gpus)
    left = []
    for word in (part.strip() for part in restriction.split(",")):
        if word.isdigit():
            hits = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            hits = [gpu for gpu in gpus if word and (gpu.uuid or "").startswith(word)]
        if len(hits) != 1 or hits[0] in left:
            break
        left.append(hits[0])
    return left


def _count(gpus: Sequence[GpuFact]) -> str:
    return "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"


def _join(numbers: object) -> str:
    return ",".join(map(str, numbers))  # type: ignore[call-overload]
