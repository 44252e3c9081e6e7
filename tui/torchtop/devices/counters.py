"""NVLink and PCIe throughput from the driver's cumulative counters, by difference.

For GPUs without GPM. `nvmlDeviceGetPcieThroughput` is never used: it blocks for 20 ms a direction.
"""

from __future__ import annotations

from typing import Any

from torchtop.devices.faults import Code

_ALL_LINKS = 0xFFFFFFFF

_FIELDS = {
    "nvlink_tx_bytes_per_s": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS, 1024),
    "nvlink_rx_bytes_per_s": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS, 1024),
    "pcie_tx_bytes_per_s": ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0, 1),
    "pcie_rx_bytes_per_s": ("NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0, 1),
}
"""Metric: field of the binding, scope, and bytes a count (NVLink counts KiB)."""

_IMPLAUSIBLE_BYTES_PER_S = 4e12
"""Above every link of today (NVLink 5: 0.9e12 a direction): counters are garbage after a GPU drop
or a reset."""

_SHORTEST_S = 0.05


class ThroughputCounters:
    """The counters of one GPU.

    Args:
        binding: the NVML binding.
        handle: of the GPU.
        nvlink: ask for NVLink too; False on a GPU without links.
    """

    def __init__(self, binding: Any, handle: Any, *, nvlink: bool) -> None:
        self._binding = binding
        self._handle = handle
        self._wanted = {
            name: (getattr(binding, field), scope, unit)
            for name, (field, scope, unit) in _FIELDS.items()
            if hasattr(binding, field) and (nvlink or not name.startswith("nvlink"))
        }
        self._last: dict[str, tuple[int, float]] = {}

    def read(self, now_s: float) -> dict[str, float | None]:
        """Bytes a second since the last call, by metric; None until there are two counts.

        Args:
            now_s: monotonic time, seconds.

        Raises:
            Exception: whatever the binding raises.
        """
        if not self._wanted:
            return {}
        names = list(self._wanted)
        asked = [self._wanted[name][:2] for name in names]
        answers = self._binding.nvmlDeviceGetFieldValues(self._handle, asked)
        return {
            name: self._rate(name, answer, now_s)
            for name, answer in zip(names, answers, strict=False)
        }

    def _rate(self, name: str, answer: Any, now_s: float) -> float | None:
        if answer.nvmlReturn != 0:
            if answer.nvmlReturn in (Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT):
                del self._wanted[name]
            self._last.pop(name, None)
            return None
        # The driver's own stamp, in microseconds, is when it read the counter.
        stamp_s = answer.timestamp / 1e6 if answer.timestamp > 0 else now_s
        count = int(answer.value.ullVal)
        before = self._last.get(name)
        if before is not None and 0 <= stamp_s - before[1] < _SHORTEST_S:
            return None
        self._last[name] = (count, stamp_s)
        if before is None or count < before[0] or stamp_s <= before[1]:
            return None  # the first count, or one that wrapped
        rate = (count - before[0]) * self._wanted[name][2] / (stamp_s - before[1])
        return float(round(rate)) if rate < _IMPLAUSIBLE_BYTES_PER_S else None
