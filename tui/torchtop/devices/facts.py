"""The GPUs of this machine, asked once, by a child process with a time limit."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

from torchtop.devices.model import GpuFact, GpuInventory
from torchtop.launch import boot

__all__ = ["GpuFact", "GpuInventory", "query_gpus"]

_KILLED_WITHIN_S = 1.0


def query_gpus(timeout_s: float = 10.0) -> GpuInventory:
    """Ask the driver which GPUs there are.

    A call into the driver can hang where no signal ends it, so a child process makes it.

    Args:
        timeout_s: how long to wait for the child, seconds. Without persistence mode the driver
            takes seconds a GPU for its first answer.

    Returns:
        The inventory; `error` says what to do when no GPU was found. Never raises.
    """
    try:
        child = subprocess.Popen(
            boot.command("torchtop.devices.inventory"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
    except OSError as error:
        return GpuInventory(error=f"cannot start {sys.executable} to ask for GPUs: {error}")
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _abandon(child)
        return GpuInventory(
            error=f"the NVIDIA driver did not answer within {timeout_s:.0f} s: "
            "run nvidia-smi, and look for Xid errors in the kernel log"
        )
    return _parse(output, child.returncode)


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """End a child that hangs; one that the kernel will not end is left behind."""
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_KILLED_WITHIN_S)
    if child.stdout is not None:
        child.stdout.close()


def _parse(output: bytes, status: int) -> GpuInventory:
    try:
        # The driver's library may print too; the answer is the last line.
        answer = json.loads(output.splitlines()[-1])
        gpus = tuple(GpuFact(**gpu) for gpu in answer.pop("gpus"))
        return GpuInventory(gpus=gpus, **answer)
    except (IndexError, ValueError, TypeError, KeyError, AttributeError):
        return GpuInventory(
            error=f"the process that asks the NVIDIA driver failed (status {status}): "
            "run nvidia-smi to see whether the driver works"
        )
