"""A stand-in for the driver, at the boundary of the ``pynvml`` module.

Constants, structures and errors are the real module's, so a misspelt one fails; only the functions
answer from here. It serves to test what a healthy GPU cannot show: errors, loss and silence.
"""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pynvml

GPM_PERCENT = 50.0
GPM_MIB_PER_S = 3.0


class FakePynvml:
    """`failures[function]` or `failures[function, gpu index]` is a return code to raise."""

    def __init__(self, gpus: int = 2, *, gpm: bool = True) -> None:
        self.gpus = gpus
        self.gpm = gpm
        self.failures: dict[Any, int] = {}
        self.calls: Counter[tuple[str, int | None]] = Counter()
        self.gpm_values: dict[int, float] = {}
        self.field_values: dict[int, tuple[int, int]] = {}
        self.hang = threading.Event()
        self.hang.set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)
        if not (name.startswith("nvml") and callable(real)) or isinstance(real, type):
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            index = args[0].index if args and isinstance(args[0], SimpleNamespace) else None
            self.calls[name, index] += 1
            if index is not None:
                self.hang.wait()
            code = self.failures.get((name, index), self.failures.get(name))
            if code is not None:
                raise pynvml.NVMLError(code)
            return ANSWERS[name](self, *args, **kwargs)

        return call


def _handle(_: FakePynvml, index: int) -> SimpleNamespace:
    return SimpleNamespace(index=index)


def _memory(_: FakePynvml, _handle: Any, version: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(total=1000, used=300 if version else 400)


def _fields(fake: FakePynvml, _handle: Any, asked: list[Any]) -> Any:
    answers = (pynvml.c_nvmlFieldValue_t * len(asked))()
    for answer, field in zip(answers, asked, strict=True):
        number = field[0] if isinstance(field, tuple) else field
        if number == pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT:
            answer.value.uiVal = 18
        elif number in fake.field_values:
            answer.value.ullVal, answer.timestamp = fake.field_values[number]
        else:
            answer.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
    return answers


def _gpm_metrics(fake: FakePynvml, query: Any) -> Any:
    for slot in range(query.numMetrics):
        metric = query.metrics[slot]
        usual = GPM_PERCENT if metric.metricId < 20 else GPM_MIB_PER_S
        metric.nvmlReturn = 0
        metric.value = fake.gpm_values.get(metric.metricId, usual)
    return query


ANSWERS: dict[str, Any] = {
    "nvmlInit": lambda _: None,
    "nvmlShutdown": lambda _: None,
    "nvmlSystemGetDriverVersion": lambda _: "580.159.04",
    "nvmlSystemGetCudaDriverVersion": lambda _: 13000,
    "nvmlDeviceGetCount": lambda fake: fake.gpus,
    "nvmlDeviceGetHandleByIndex": _handle,
    "nvmlDeviceGetUUID": lambda _, h: f"GPU-{h.index}",
    "nvmlDeviceGetName": lambda _, h: "NVIDIA H200",
    "nvmlDeviceGetPciInfo": lambda _, h: SimpleNamespace(busId="00000000:19:00.0"),
    "nvmlDeviceGetEnforcedPowerLimit": lambda _, h: 700_000,
    "nvmlDeviceGetMaxClockInfo": lambda _, h, kind: 1980,
    "nvmlDeviceGetMigMode": lambda _, h: [0, 0],
    "nvmlDeviceGetUtilizationRates": lambda _, h: SimpleNamespace(gpu=66, memory=3),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetPowerUsage": lambda _, h: 186_500,
    "nvmlDeviceGetTemperatureV": lambda _, h, sensor: 41,
    "nvmlDeviceGetTemperature": lambda _, h, sensor: 40,
    "nvmlDeviceGetClockInfo": lambda _, h, kind: 1755,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _, h: 0x1 | 0x2 | 0x4 | 0x40,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _, h: 0x8,
    "nvmlDeviceGetTotalEnergyConsumption": lambda _, h: 12_345_000,
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda _, h: [
        SimpleNamespace(pid=1, usedGpuMemory=None)
    ],
    "nvmlDeviceGetComputeRunningProcesses_v2": lambda _, h: [],
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlGpmQueryDeviceSupport": lambda fake, h: SimpleNamespace(isSupportedDevice=fake.gpm),
    "nvmlGpmSampleAlloc": lambda _: pynvml.c_nvmlGpmSample_t(),
    "nvmlGpmSampleFree": lambda _, sample: None,
    "nvmlGpmSampleGet": lambda _, h, sample: sample,
    "nvmlGpmMetricsGet": _gpm_metrics,
}
