"""Activity counters of Hopper and newer GPUs (NVML's GPM), from pairs of samples.

"Utilization" counts a kernel that spins in an all-reduce as 100 % busy. These counters tell how
much of the GPU really works, and need no profiler: they run beside one.
"""

from __future__ import annotations

import math
from typing import Any

SHORTEST_S = 0.1
"""The driver gives no metrics for a pair of samples closer than 100 ms (its hard limit)."""

LONGEST_S = 30.0
"""A pair further apart than this is no picture of the present tick."""

_PERCENT = 0.01
_MIB = 2.0**20

_METRICS = {
    "sm_active": ("NVML_GPM_METRIC_SM_UTIL", _PERCENT),
    "sm_occupancy": ("NVML_GPM_METRIC_SM_OCCUPANCY", _PERCENT),
    "tensor_active": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", _PERCENT),
    "dram_active": ("NVML_GPM_METRIC_DRAM_BW_UTIL", _PERCENT),
    "pcie_tx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MIB),
    "pcie_rx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MIB),
    "nvlink_tx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MIB),
    "nvlink_rx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MIB),
}
"""Metric: constant of the binding, and the factor from its unit (percent, MiB/s) to ours."""


def is_supported(binding: Any, handle: Any) -> bool:
    """Whether the GPU has the counters.

    Raises:
        Exception: whatever the binding raises.
    """
    return bool(binding.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)


class GpmReader:
    """The counters of one GPU.

    Args:
        binding: the NVML binding.
        handle: of the GPU.

    Raises:
        Exception: whatever the binding raises; the first sample is taken here, so a missing
            permission shows at once.
    """

    def __init__(self, binding: Any, handle: Any) -> None:
        self._binding = binding
        self._handle = handle
        self._last = binding.nvmlGpmSampleAlloc()
        self._next = binding.nvmlGpmSampleAlloc()
        self._last_s: float | None = None
        # Built once: the structure is 20 kB of ctypes.
        self._query = binding.c_nvmlGpmMetricsGet_t()
        self._query.version = binding.NVML_GPM_METRICS_GET_VERSION
        self._query.numMetrics = len(_METRICS)
        for slot, (constant, _) in enumerate(_METRICS.values()):
            self._query.metrics[slot].metricId = getattr(binding, constant)
        binding.nvmlGpmSampleGet(handle, self._last)

    def read(self, now_s: float) -> dict[str, float | None]:
        """The metrics since the last call; empty when there is no usable pair of samples.

        Args:
            now_s: monotonic time, seconds.

        Returns:
            Activities as 0..1, throughputs in bytes a second; None for a metric that failed.

        Raises:
            Exception: whatever the binding raises.
        """
        elapsed_s = None if self._last_s is None else now_s - self._last_s
        if elapsed_s is not None and elapsed_s < SHORTEST_S:
            return {}
        self._binding.nvmlGpmSampleGet(self._handle, self._next)
        before, self._last, self._next = self._last, self._next, self._last
        self._last_s = now_s
        if elapsed_s is None or elapsed_s > LONGEST_S:
            return {}
        self._query.sample1, self._query.sample2 = before, self._last
        self._binding.nvmlGpmMetricsGet(self._query)
        return {
            name: _scaled(self._query.metrics[slot], factor)
            for slot, (name, (_, factor)) in enumerate(_METRICS.items())
        }

    def close(self) -> None:
        """Give the samples back to the driver's library.

        Raises:
            Exception: whatever the binding raises.
        """
        self._binding.nvmlGpmSampleFree(self._last)
        self._binding.nvmlGpmSampleFree(self._next)


def _scaled(metric: Any, factor: float) -> float | None:
    value = float(metric.value)
    if metric.nvmlReturn != 0 or not math.isfinite(value) or value < 0:
        return None
    if factor == _PERCENT:
        return round(min(1.0, value * factor), 4)
    return float(round(value * factor))
