"""Plain types that leave this package: what is known of a GPU, and the names of its metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

METRICS = (
    "util_percent",
    "memory_used_bytes",
    "power_w",
    "temperature_c",
    "sm_clock_mhz",
    "throttle",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "energy_j",
)
"""The metrics of a ``tick`` record, each one value or null a GPU."""

HEADER_KEYS = (
    "index",
    "uuid",
    "name",
    "memory_total_bytes",
    "power_limit_w",
    "sm_clock_max_mhz",
    "gpm",
    "nvlink_links",
    "pci",
)
"""The facts of a GPU that the header of ``devices.jsonl`` holds."""


@dataclass(frozen=True)
class GpuFact:
    """What does not change about a GPU while the driver is loaded.

    Attributes:
        index: NVML's index; not CUDA's ordinal.
        uuid: NVML's "GPU-..." form; None for a GPU that the driver has lost.
        name: product name.
        memory_total_bytes: device memory.
        power_limit_w: the limit in force, watts.
        sm_clock_max_mhz: highest SM clock.
        gpm: activity counters (SM, tensor, DRAM) can be read: Hopper and newer, with permission.
        nvlink_links: links of this GPU; 0 when it has none, None when the driver does not say.
        pci: bus id, as "00000000:19:00.0".
        gpm_error: why `gpm` is false on a GPU that has the counters.
        mig: MIG mode is on; utilization of the whole GPU is then not available.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_total_bytes: int | None = None
    power_limit_w: float | None = None
    sm_clock_max_mhz: int | None = None
    gpm: bool = False
    nvlink_links: int | None = None
    pci: str | None = None
    gpm_error: str | None = None
    mig: bool | None = None

    def header(self) -> dict[str, Any]:
        """The entry of this GPU in the header of ``devices.jsonl``."""
        facts = asdict(self)
        return {key: facts[key] for key in HEADER_KEYS}


@dataclass(frozen=True)
class GpuInventory:
    """The GPUs of this machine.

    Attributes:
        driver: version of the NVIDIA driver, as "580.159.04".
        cuda_driver: highest CUDA version that the driver supports, as "13.0".
        error: one sentence that says why there are no GPUs; None when there are.
        gpus: in NVML's order.
    """

    driver: str | None = None
    cuda_driver: str | None = None
    error: str | None = None
    gpus: tuple[GpuFact, ...] = ()
