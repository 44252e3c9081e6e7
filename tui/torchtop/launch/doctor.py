"""``torchtop doctor``: what this machine has for training and watching, and what it lacks.

torch is asked in a process of its own and the driver in another, side by side and each with a time
limit, so that neither a broken driver nor a slow disk keeps the answer back.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from torchtop import __version__
from torchtop.launch import doctor_host, doctor_torch
from torchtop.launch.findings import Finding, render, to_json, worst

if TYPE_CHECKING:
    from torchtop.devices.facts import GpuInventory

__all__ = ["Finding", "examine", "render", "to_json", "worst"]

_GPU_TIMEOUT_S = 8.0
"""Own choice: without persistence mode the driver takes seconds to answer first."""


def examine(python: str | None = None) -> list[Finding]:
    """Look at this machine, in seconds, half a minute from a cold disk. Never raises.

    Args:
        python: the interpreter that is to train; by default the one that runs torchtop.
    """
    with ThreadPoolExecutor(2) as pool:
        torch = pool.submit(doctor_torch.ask, python or sys.executable)
        gpus = pool.submit(_query_gpus)
        host = [f for name, look in doctor_host.CHECKS.items() for f in _guarded(name, look)]
        answer, inventory = torch.result(), gpus.result()
    return [
        _platform(),
        Finding("torchtop", "ok", __version__),
        *_guarded("torch", lambda: doctor_torch.findings(answer, inventory)),
        *_guarded("GPUs", lambda: _gpus(inventory)),
        *host,
    ]


def _query_gpus() -> GpuInventory:
    from torchtop.devices.facts import query_gpus

    return query_gpus(_GPU_TIMEOUT_S)


def _guarded(name: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A look that goes wrong itself is a finding too, not the end of the report."""
    try:
        yield from look()
    except Exception as error:
        yield Finding(name, "warn", f"could not be looked at: {type(error).__name__}: {error}")


def _platform() -> Finding:
    value = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform != "linux":
        return Finding("platform", "fail", value, "torchtop runs on Linux only")
    return Finding("platform", "ok", value)


def _gpus(inventory: GpuInventory) -> Iterator[Finding]:
    if not inventory.gpus:
        yield _no_gpus(inventory)
        return
    cuda = f", up to CUDA {inventory.cuda_driver}" if inventory.cuda_driver else ""
    yield Finding("NVML", "ok", f"driver {inventory.driver or 'N/A'}{cuda}")
    lost = [gpu for gpu in inventory.gpus if gpu.uuid is None]
    names = ", ".join(sorted({gpu.name or "unknown" for gpu in inventory.gpus}))
    value = f"{len(inventory.gpus)}: {names}"
    if lost:
        numbers = ", ".join(str(gpu.index) for gpu in lost)
        advice = f"the driver has lost GPU {numbers}: see Xid errors in dmesg; reset it or reboot"
        yield Finding("GPUs", "fail", value, advice)
    else:
        yield Finding("GPUs", "ok", value)
    if split := [gpu.index for gpu in inventory.gpus if gpu.mig]:
        numbers = ", ".join(map(str, split))
        yield Finding("MIG", "info", f"on GPU {numbers}", "utilization of a split GPU reads N/A")
    yield _gpm(inventory)


def _gpm(inventory: GpuInventory) -> Finding:
    able = sum(gpu.gpm for gpu in inventory.gpus)
    value = f"SM, tensor and memory activity on {able} of {len(inventory.gpus)} GPUs"
    if able == len(inventory.gpus):
        return Finding("GPM", "ok", value)
    refusals = [gpu.gpm_error for gpu in inventory.gpus if gpu.gpm_error]
    if refusals:
        return Finding("GPM", "warn", value, refusals[0])
    advice = "Hopper and newer have it; on others utilization shows, which counts waiting as work"
    return Finding("GPM", "info", value, advice)


def _no_gpus(inventory: GpuInventory) -> Finding:
    """No GPU is a fact; a GPU that the driver does not show is a fault."""
    reason = inventory.error or "no GPUs"
    if not _nvidia_on_pci():
        return Finding("GPUs", "info", reason, "workloads run on the CPU (--device cpu, gloo)")
    advice = "an NVIDIA GPU is on the PCI bus: load the driver; in a container: --gpus all"
    return Finding("GPUs", "fail", reason, advice)


def _nvidia_on_pci() -> bool:
    """Whether the kernel sees a display or 3D controller of NVIDIA's (vendor 10de, class 03)."""
    try:
        devices = list(Path("/sys/bus/pci/devices").iterdir())
    except OSError:
        return False
    return any(
        _text(device / "vendor") == "0x10de" and _text(device / "class").startswith("0x03")
        for device in devices
    )


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""
