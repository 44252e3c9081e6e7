"""CPU, memory, disk and network: the arithmetic, and this machine's own counters."""

from __future__ import annotations

import psutil
import pytest

from torchtop.devices.host import HostCounters, HostSampler, rates, read_counters


def test_rates_are_differences_over_monotonic_time() -> None:
    before = HostCounters(10.0, ((1.0, 10.0), (0.0, 10.0)), (1000, 0), (0, 500))
    after = HostCounters(12.0, ((2.5, 12.0), (0.5, 12.0)), (5000, 20), (64, 500))

    assert rates(before, after) == {
        "cpu_percent": 50.0,
        "cpu_percent_per_core": [75.0, 25.0],
        "disk_read_bytes_per_s": 2000.0,
        "disk_write_bytes_per_s": 10.0,
        "net_rx_bytes_per_s": 32.0,
        "net_tx_bytes_per_s": 0.0,
    }


def test_nothing_is_made_up_without_two_readings() -> None:
    assert set(rates(None, read_counters()).values()) == {None}


def test_a_core_that_came_and_a_counter_that_went_back_are_none() -> None:
    before = HostCounters(10.0, ((1.0, 10.0),), (1000, 1000), None)
    after = HostCounters(11.0, ((1.0, 11.0), (0.0, 1.0)), (10, 2000), (1, 1))

    found = rates(before, after)

    assert found["cpu_percent"] is None
    assert found["cpu_percent_per_core"] is None
    assert found["disk_read_bytes_per_s"] is None
    assert found["disk_write_bytes_per_s"] == 1000.0
    assert found["net_rx_bytes_per_s"] is None


def test_this_machine_is_read() -> None:
    sampler = HostSampler()
    sample = sampler.sample()

    assert 0 < sample["memory_used_bytes"] < psutil.virtual_memory().total
    assert sample["load_1m"] >= 0
    counters = read_counters()
    assert counters.cores is not None
    assert len(counters.cores) == psutil.cpu_count()
    assert counters.disk is not None
    assert counters.network is not None


def test_a_counter_that_cannot_be_read_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("no /proc/diskstats")

    monkeypatch.setattr(psutil, "disk_io_counters", broken)

    assert read_counters().disk is None
    assert read_counters().cores is not None
