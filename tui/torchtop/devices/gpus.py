"""The GPUs behind a time limit: what the sampler asks, whatever state the driver is in."""

from __future__ import annotations

import contextlib
from typing import Any

from torchtop.devices.guard import DriverSilentError, Guard
from torchtop.devices.model import METRICS, GpuInventory
from torchtop.devices.nvml import Nvml

OPEN_LIMIT_S = 30.0
"""Without persistence mode the driver sets each GPU up on the first call: seconds a GPU."""

PROCESSES_LIMIT_S = 2.0


class GuardedGpus:
    """Asks the driver, and answers with None values where it stays silent.

    Args:
        open_limit_s: seconds that the driver may take to find the GPUs.
    """

    def __init__(self, open_limit_s: float = OPEN_LIMIT_S) -> None:
        self._guard = Guard()
        self._nvml: Nvml | None = None
        try:
            self._nvml = self._guard.call(Nvml, open_limit_s)
            self.inventory = self._nvml.inventory
        except DriverSilentError:
            self.inventory = GpuInventory(
                error=f"the NVIDIA driver did not answer within {open_limit_s:.0f} s: "
                "run nvidia-smi, and look for Xid errors in the kernel log"
            )

    def sample(self, now_s: float, *, energy: bool, limit_s: float) -> dict[str, list[Any]]:
        """The metrics of a ``tick`` record.

        Args:
            now_s: monotonic time, seconds.
            energy: read the energy counter too.
            limit_s: seconds to wait for the driver.
        """
        nvml = self._nvml
        if nvml is not None and self.inventory.gpus:
            try:
                return self._guard.call(lambda: nvml.sample(now_s, energy=energy), limit_s)
            except DriverSilentError:
                pass
        return {metric: [None] * len(self.inventory.gpus) for metric in METRICS}

    def processes(self, now_s: float) -> list[Any]:
        """The processes of each GPU; None for a GPU where the driver does not say."""
        nvml = self._nvml
        if nvml is not None and self.inventory.gpus:
            try:
                return self._guard.call(lambda: nvml.processes(now_s), PROCESSES_LIMIT_S)
            except DriverSilentError:
                pass
        return [None] * len(self.inventory.gpus)

    def close(self) -> None:
        """Let the driver go, if it is not stuck."""
        if self._nvml is not None:
            with contextlib.suppress(DriverSilentError):
                self._guard.call(self._nvml.close, PROCESSES_LIMIT_S)
