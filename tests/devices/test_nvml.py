"""What becomes of the driver's answers and errors. The fake stands in for the driver alone."""

from __future__ import annotations

import math
import sys
from typing import Any

import pynvml
import pytest

from devices.fake_pynvml import FakePynvml
from torchtop.devices.faults import FIRST_RETRY_S
from torchtop.devices.model import HEADER_KEYS, METRICS
from torchtop.devices.nvml import Nvml, throttle_names


def opened(monkeypatch: pytest.MonkeyPatch, fake: Any) -> Nvml:
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return Nvml()


def second_sample(nvml: Nvml) -> dict[str, list[Any]]:
    """Rates and activities need two."""
    nvml.sample(100.0, energy=False)
    return nvml.sample(101.0, energy=False)


def test_a_healthy_gpu_is_told_in_our_units(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = opened(monkeypatch, FakePynvml(gpus=1))
    second_sample(nvml)

    row = {metric: values[0] for metric, values in nvml.sample(102.0, energy=True).items()}

    assert tuple(row) == METRICS
    assert row == {
        "util_percent": 66,
        "memory_used_bytes": 300,
        "power_w": 186.5,
        "temperature_c": 41,
        "sm_clock_mhz": 1755,
        "throttle": ["sw_power_cap", "hw_thermal_slowdown"],
        "sm_active": 0.5,
        "sm_occupancy": 0.5,
        "tensor_active": 0.5,
        "dram_active": 0.5,
        "nvlink_tx_bytes_per_s": 3 * 2**20,
        "nvlink_rx_bytes_per_s": 3 * 2**20,
        "pcie_tx_bytes_per_s": 3 * 2**20,
        "pcie_rx_bytes_per_s": 3 * 2**20,
        "energy_j": 12_345.0,
    }


def test_facts_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = opened(monkeypatch, FakePynvml(gpus=1)).inventory

    assert (inventory.driver, inventory.cuda_driver, inventory.error) == (
        "580.159.04",
        "13.0",
        None,
    )
    header = inventory.gpus[0].header()
    assert tuple(header) == HEADER_KEYS
    assert header["uuid"] == "GPU-0"
    assert header["power_limit_w"] == 700.0
    assert header["gpm"] is True
    assert header["nvlink_links"] == 18


def test_the_energy_counter_is_read_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePynvml(gpus=1)
    nvml = opened(monkeypatch, fake)

    assert second_sample(nvml)["energy_j"] == [None]
    assert fake.calls["nvmlDeviceGetTotalEnergyConsumption", 0] == 0


@pytest.mark.fault(32, "NotSupported", "the value is not known")
def test_an_unsupported_metric_is_none_and_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakePynvml(gpus=1)
    fake.failures["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml = opened(monkeypatch, fake)

    assert second_sample(nvml)["util_percent"] == [None]
    assert nvml.sample(1e6, energy=False)["util_percent"] == [None]
    assert fake.calls["nvmlDeviceGetUtilizationRates", 0] == 1


def test_a_passing_error_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePynvml(gpus=1)
    nvml = opened(monkeypatch, fake)
    fake.failures["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_UNKNOWN

    assert nvml.sample(100.0, energy=False)["power_w"] == [None]
    fake.failures.clear()
    assert nvml.sample(99.0 + FIRST_RETRY_S, energy=False)["power_w"] == [None]
    assert fake.calls["nvmlDeviceGetPowerUsage", 0] == 1
    assert nvml.sample(100.0 + FIRST_RETRY_S, energy=False)["power_w"] == [186.5]


@pytest.mark.parametrize(
    ("missing", "metric", "instead"),
    [
        ("nvmlDeviceGetTemperatureV", "temperature_c", 40),
        ("nvmlDeviceGetCurrentClocksEventReasons", "throttle", ["hw_slowdown"]),
    ],
)
def test_a_call_that_the_driver_lacks_gives_way_to_an_older_one(
    monkeypatch: pytest.MonkeyPatch, missing: str, metric: str, instead: object
) -> None:
    fake = FakePynvml(gpus=1)
    fake.failures[missing] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND

    assert second_sample(opened(monkeypatch, fake))[metric] == [instead]
    assert fake.calls[missing, 0] == 1


def test_a_call_that_the_binding_lacks_gives_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldBinding(FakePynvml):
        def __getattr__(self, name: str) -> Any:
            if name in ("nvmlDeviceGetTemperatureV", "nvmlMemory_v2"):
                raise AttributeError(name)
            return super().__getattr__(name)

    values = second_sample(opened(monkeypatch, OldBinding(gpus=1)))

    assert values["temperature_c"] == [40]
    assert values["memory_used_bytes"] == [400]


def test_a_lost_gpu_is_none_and_left_alone_and_the_others_live_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakePynvml(gpus=2)
    nvml = opened(monkeypatch, fake)
    second_sample(nvml)

    fake.failures["nvmlDeviceGetPowerUsage", 0] = pynvml.NVML_ERROR_GPU_IS_LOST
    values = nvml.sample(102.0, energy=True)

    assert {metric: pair[0] for metric, pair in values.items()} == dict.fromkeys(METRICS)
    assert values["power_w"][1] == 186.5
    assert values["sm_active"][1] == 0.5
    before = sum(count for (_, index), count in fake.calls.items() if index == 0)
    nvml.sample(1e6, energy=True)
    assert nvml.processes(1e6)[0] is None
    nvml.close()
    assert before == sum(count for (_, index), count in fake.calls.items() if index == 0)


def test_a_gpu_without_a_handle_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class FirstIsLost(FakePynvml):
        def __getattr__(self, name: str) -> Any:
            call = super().__getattr__(name)
            if name != "nvmlDeviceGetHandleByIndex":
                return call

            def by_index(index: int) -> Any:
                if index == 0:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
                return call(index)

            return by_index

    nvml = opened(monkeypatch, FirstIsLost(gpus=2))

    assert [gpu.uuid for gpu in nvml.inventory.gpus] == [None, "GPU-1"]
    assert second_sample(nvml)["util_percent"] == [None, 66]


def test_a_gpm_metric_that_is_not_a_number_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePynvml(gpus=1)
    fake.gpm_values[pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL] = math.nan
    fake.gpm_values[pynvml.NVML_GPM_METRIC_SM_UTIL] = 100.4

    values = second_sample(opened(monkeypatch, fake))

    assert values["tensor_active"] == [None]
    assert values["sm_active"] == [1.0]
    assert values["dram_active"] == [0.5]


def test_samples_too_close_for_gpm_give_none(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = opened(monkeypatch, FakePynvml(gpus=1))
    second_sample(nvml)

    assert nvml.sample(101.05, energy=False)["sm_active"] == [None]
    assert nvml.sample(102.0, energy=False)["sm_active"] == [0.5]


@pytest.mark.fault(32, "NoPermission", "others stand in")
def test_counters_stand_in_where_gpm_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePynvml(gpus=1)
    fake.failures["nvmlGpmSampleGet"] = pynvml.NVML_ERROR_NO_PERMISSION
    tx, rx = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
    fake.field_values = {tx: (10, 1_000_000), rx: (500, 1_000_000)}
    nvml = opened(monkeypatch, fake)
    fact = nvml.inventory.gpus[0]
    assert (fact.gpm, fact.gpm_error) == (False, "Insufficient Permissions")

    assert nvml.sample(100.0, energy=False)["nvlink_tx_bytes_per_s"] == [None]
    fake.field_values = {tx: (30, 3_000_000), rx: (100, 3_000_000)}
    values = nvml.sample(102.0, energy=False)

    assert values["nvlink_tx_bytes_per_s"] == [10 * 1024.0]  # 20 KiB in the driver's 2 s
    assert values["pcie_rx_bytes_per_s"] == [None]  # it has wrapped
    assert values["pcie_tx_bytes_per_s"] == [None]  # not supported
    assert values["sm_active"] == [None]


def test_counters_that_leap_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePynvml(gpus=1, gpm=False)
    field = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    fake.field_values = {field: (0, 1_000_000)}
    nvml = opened(monkeypatch, fake)
    nvml.sample(100.0, energy=False)

    fake.field_values = {field: (2**60, 2_000_000)}

    assert nvml.sample(101.0, energy=False)["pcie_tx_bytes_per_s"] == [None]


@pytest.mark.fault(32, "a process list without memory", "the value is not known")
def test_processes_are_plain_and_unknown_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePynvml(gpus=2)
    fake.failures["nvmlDeviceGetComputeRunningProcesses_v3", 1] = pynvml.NVML_ERROR_UNKNOWN

    first, second = opened(monkeypatch, fake).processes(100.0)

    assert first is not None
    assert first[0]["process_pid"] == 1
    assert first[0]["used_bytes"] is None
    assert second is None  # not known, which is not the same as none


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "different versions"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidiactl"),
        (pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
    ],
)
def test_a_driver_that_does_not_start_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    fake = FakePynvml()
    fake.failures["nvmlInit"] = code

    nvml = opened(monkeypatch, fake)

    assert words in (nvml.inventory.error or "")
    assert "\n" not in (nvml.inventory.error or "")
    assert nvml.inventory.gpus == ()
    assert nvml.sample(1.0, energy=True) == {metric: [] for metric in METRICS}
    nvml.close()


def test_a_stranger_named_pynvml_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nvidia-ml-py" in (opened(monkeypatch, object()).inventory.error or "")


def test_a_missing_binding_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pip install nvidia-ml-py" in (opened(monkeypatch, None).inventory.error or "")


def test_no_gpu_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no GPU" in (opened(monkeypatch, FakePynvml(gpus=0)).inventory.error or "")


def test_idle_and_the_users_own_clocks_are_no_throttling() -> None:
    assert throttle_names(0x1 | 0x2) == []
    assert throttle_names(0x1 | 0x20 | 0x800) == ["sw_thermal_slowdown", "0x800"]


def test_garbage_from_the_library_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Garbage(FakePynvml):
        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetName":
                return lambda _: b"\xff\xfe".decode("utf-8")
            return super().__getattr__(name)

    nvml = opened(monkeypatch, Garbage(gpus=1))

    assert nvml.inventory.gpus[0].name is None
    assert nvml.inventory.gpus[0].uuid == "GPU-0"
