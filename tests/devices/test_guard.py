"""Calls that may not come back."""

from __future__ import annotations

import threading

import pytest

from devices.waiting import PATIENCE_S, until
from torchtop.devices import gpus as gpus_module
from torchtop.devices.gpus import GuardedGpus
from torchtop.devices.guard import DriverSilentError, Guard


def test_an_answer_and_an_error_come_through() -> None:
    guard = Guard()

    assert guard.call(lambda: 7, PATIENCE_S) == 7
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 // 0, PATIENCE_S)
    assert guard.call(lambda: 8, PATIENCE_S) == 8


def test_a_late_answer_is_dropped_and_calls_work_again() -> None:
    guard = Guard()
    gate = threading.Event()

    def late() -> str:
        gate.wait()
        return "late"

    with pytest.raises(DriverSilentError):
        guard.call(late, 0.01)
    with pytest.raises(DriverSilentError):  # at once: the first call is still out
        guard.call(lambda: "second", PATIENCE_S)
    gate.set()

    def answered() -> bool:
        try:
            return guard.call(lambda: "third", PATIENCE_S) == "third"
        except DriverSilentError:
            return False

    until(answered)


def test_a_driver_that_never_opens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(gpus_module, "Nvml", gate.wait)

    gpus = GuardedGpus(open_limit_s=0.01)

    assert "did not answer" in (gpus.inventory.error or "")
    assert gpus.processes(0.0) == []
    gpus.close()
    gate.set()
