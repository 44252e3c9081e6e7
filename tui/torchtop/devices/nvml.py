"""NVML: the only module that touches ``pynvml`` (from the package nvidia-ml-py).

Everything here may block for as long as the driver likes, so it runs in the sampler's guarded
thread or in a child process. One thread uses it. No exception of the binding leaves it.

Calls and how often: utilization, memory, power, temperature, clock and clock event reasons take
2 to 10 microseconds each on an H200 and are read every tick, GPM takes 0.9 ms; the energy counter
takes 3 ms and is read on request, the process list 0.13 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from torchtop.devices.counters import ThroughputCounters
from torchtop.devices.faults import GpuLost, Reading, describe, why_no_gpus
from torchtop.devices.gpm import GpmReader, is_supported
from torchtop.devices.model import METRICS, GpuFact, GpuInventory

T = TypeVar("T")

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h."""

THROTTLE_REASONS = {
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReasons (nvml.h). Idle (0x1) and the user's own clock setting (0x2) lower
clocks too, and are no throttling."""

_NOT_THROTTLING = 0x001 | 0x002


class GpuProcess(TypedDict):
    """A process that has a compute context on a GPU, as in a ``processes`` record."""

    process_pid: int
    used_bytes: int | None
    name: str | None


def throttle_names(reasons: int) -> list[str]:
    """Names of the set clock event reasons that mean throttling; a new bit reads "0x800"."""
    bits = [1 << bit for bit in range(64) if reasons & ~_NOT_THROTTLING & 1 << bit]
    return [THROTTLE_REASONS.get(bit, hex(bit)) for bit in bits]


class Gpu:
    """One GPU, by index: its facts, and what it does now.

    Args:
        binding: the NVML binding.
        index: NVML's index.
    """

    def __init__(self, binding: Any, index: int) -> None:
        self._lost = False
        self._now_s = 0.0
        self._readings: dict[str, Reading[Any]] = {}
        self._gpm: GpmReader | None = None
        try:
            handle = binding.nvmlDeviceGetHandleByIndex(index)
        except Exception:
            # Never ask about a GPU without a handle: a null one crashes the driver's library.
            self._lost = True
            self.fact = GpuFact(index)
            return
        gpm_error = self._start_gpm(binding, handle)
        self.fact = _facts(binding, handle, index, self._gpm is not None, gpm_error)
        nvlink = self.fact.nvlink_links != 0
        counters = ThroughputCounters(binding, handle, nvlink=nvlink)
        self._readings = _readings(binding, handle)
        self._activity: Reading[dict[str, float | None]] = Reading(
            *([self._read_gpm] if self._gpm else [])
        )
        self._throughput = Reading(lambda: counters.read(self._now_s))
        self._processes = Reading(
            lambda: _processes(binding.nvmlDeviceGetComputeRunningProcesses_v3(handle)),
            lambda: _processes(binding.nvmlDeviceGetComputeRunningProcesses_v2(handle)),
        )
        self._energy = Reading(lambda: binding.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000)

    def sample(self, now_s: float, *, energy: bool) -> dict[str, Any]:
        """All metrics by name; those that cannot be had are missing or None.

        Args:
            now_s: monotonic time, seconds.
            energy: read the energy counter too.
        """
        if self._lost:
            return {}
        self._now_s = now_s
        try:
            values = {name: reading.read(now_s) for name, reading in self._readings.items()}
            activity = self._activity.read(now_s)
            if activity is None:  # no GPM, or not now
                activity = self._throughput.read(now_s) or {}
            values.update(activity)
            if energy:
                values["energy_j"] = self._energy.read(now_s)
        except GpuLost:
            self._lost = True
            return {}
        if self.fact.nvlink_links == 0:
            values["nvlink_tx_bytes_per_s"] = values["nvlink_rx_bytes_per_s"] = None
        return values

    def processes(self, now_s: float) -> list[GpuProcess] | None:
        """Processes with a compute context; None where the driver does not say."""
        if self._lost:
            return None
        try:
            return self._processes.read(now_s)
        except GpuLost:
            self._lost = True
            return None

    def close(self) -> None:
        """Free what the driver's library holds for this GPU."""
        if self._gpm is not None and not self._lost:
            _ask(self._gpm.close)

    def _start_gpm(self, binding: Any, handle: Any) -> str | None:
        """Open the activity counters; why not, on a GPU that has them."""
        if not _ask(lambda: is_supported(binding, handle)):
            return None
        try:
            self._gpm = GpmReader(binding, handle)
        except Exception as error:
            return describe(error)
        return None

    def _read_gpm(self) -> dict[str, float | None]:
        assert self._gpm is not None
        return self._gpm.read(self._now_s)


class Nvml:
    """The GPUs of this machine. Opening never fails: `inventory.error` says why there are none."""

    def __init__(self) -> None:
        self._binding: Any = None
        self._gpus: list[Gpu] = []
        self.inventory = self._open()

    def sample(self, now_s: float, *, energy: bool) -> dict[str, list[Any]]:
        """The metrics of a ``tick`` record: a value or None a GPU, in the inventory's order.

        Args:
            now_s: monotonic time, seconds.
            energy: read the energy counter too.
        """
        rows = [gpu.sample(now_s, energy=energy) for gpu in self._gpus]
        return {metric: [row.get(metric) for row in rows] for metric in METRICS}

    def processes(self, now_s: float) -> list[list[GpuProcess] | None]:
        """The processes of each GPU; None for a GPU where the driver does not say."""
        return [gpu.processes(now_s) for gpu in self._gpus]

    def close(self) -> None:
        """Let the driver's library go."""
        for gpu in self._gpus:
            gpu.close()
        if self._binding is not None:
            _ask(self._binding.nvmlShutdown)

    def _open(self) -> GpuInventory:
        try:
            import pynvml
        except Exception as error:  # a broken stranger of that name may raise anything
            return GpuInventory(
                error=f"the Python package nvidia-ml-py cannot be loaded ({describe(error)}): "
                "pip install nvidia-ml-py"
            )
        if not hasattr(pynvml, "nvmlDeviceGetHandleByIndex"):
            return GpuInventory(
                error="the installed module pynvml is not NVIDIA's: pip install nvidia-ml-py"
            )
        try:
            pynvml.nvmlInit()
            self._binding = pynvml
            count = pynvml.nvmlDeviceGetCount()
        except Exception as error:
            return GpuInventory(error=why_no_gpus(error))
        # By index: asking by UUID fails for every GPU as soon as one is lost.
        self._gpus = [Gpu(pynvml, index) for index in range(count)]
        return GpuInventory(
            driver=_text(_ask(pynvml.nvmlSystemGetDriverVersion)),
            cuda_driver=_cuda_version(_ask(pynvml.nvmlSystemGetCudaDriverVersion)),
            error=None if count else "the NVIDIA driver is loaded but sees no GPU",
            gpus=tuple(gpu.fact for gpu in self._gpus),
        )


def _ask(call: Callable[[], T]) -> T | None:
    """The answer, or None where there is none."""
    try:
        return call()
    except Exception:
        return None


def _facts(binding: Any, handle: Any, index: int, gpm: bool, gpm_error: str | None) -> GpuFact:
    n = binding
    memory = _first(
        lambda: n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2).total,
        lambda: n.nvmlDeviceGetMemoryInfo(handle).total,
    )
    power_mw = _ask(lambda: n.nvmlDeviceGetEnforcedPowerLimit(handle))
    mig = _ask(lambda: n.nvmlDeviceGetMigMode(handle)[0])
    return GpuFact(
        index=index,
        uuid=_text(_ask(lambda: n.nvmlDeviceGetUUID(handle))),
        name=_text(_ask(lambda: n.nvmlDeviceGetName(handle))),
        memory_total_bytes=memory,
        power_limit_w=None if power_mw is None else power_mw / 1000,
        sm_clock_max_mhz=_ask(lambda: n.nvmlDeviceGetMaxClockInfo(handle, n.NVML_CLOCK_SM)),
        gpm=gpm,
        nvlink_links=_ask(lambda: _link_count(n, handle)),
        pci=_text(_ask(lambda: n.nvmlDeviceGetPciInfo(handle).busId)),
        gpm_error=gpm_error,
        mig=None if mig is None else bool(mig),
    )


def _first(*ways: Callable[[], T]) -> T | None:
    """The answer of the first call that gives one."""
    for way in ways:
        value = _ask(way)
        if value is not None:
            return value
    return None


def _link_count(binding: Any, handle: Any) -> int | None:
    answer = binding.nvmlDeviceGetFieldValues(handle, [binding.NVML_FI_DEV_NVLINK_LINK_COUNT])[0]
    return int(answer.value.uiVal) if answer.nvmlReturn == 0 else None


def _readings(binding: Any, handle: Any) -> dict[str, Reading[Any]]:
    """The metrics of every tick, each with its calls from the newest to the oldest driver's."""
    n = binding
    return {
        "util_percent": Reading(lambda: n.nvmlDeviceGetUtilizationRates(handle).gpu),
        # The first version counts memory that the driver reserves as used.
        "memory_used_bytes": Reading(
            lambda: n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2).used,
            lambda: n.nvmlDeviceGetMemoryInfo(handle).used,
        ),
        "power_w": Reading(lambda: n.nvmlDeviceGetPowerUsage(handle) / 1000),
        "temperature_c": Reading(
            lambda: n.nvmlDeviceGetTemperatureV(handle, n.NVML_TEMPERATURE_GPU),
            lambda: n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU),
        ),
        "sm_clock_mhz": Reading(lambda: n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM)),
        "throttle": Reading(
            lambda: throttle_names(n.nvmlDeviceGetCurrentClocksEventReasons(handle)),
            lambda: throttle_names(n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        ),
    }


def _processes(answers: list[Any]) -> list[GpuProcess]:
    return [
        GpuProcess(
            process_pid=answer.pid,
            used_bytes=answer.usedGpuMemory,
            name=_process_name(answer.pid),
        )
        for answer in answers
    ]


def _process_name(pid: int) -> str | None:
    """The kernel's name of a process.

    The driver tells pids of the initial namespace: in a container with pids of its own the same
    number is another process, so no name is given there.
    """
    try:
        if Path("/proc/self/ns/pid").readlink().as_posix() != _INITIAL_PID_NAMESPACE:
            return None
        return Path(f"/proc/{pid}/comm").read_bytes().decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _cuda_version(value: int | None) -> str | None:
    """13000 as "13.0" (1000 * major + 10 * minor, nvml.h)."""
    return None if value is None else f"{value // 1000}.{value % 1000 // 10}"
