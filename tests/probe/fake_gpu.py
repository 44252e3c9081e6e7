"""A GPU that passes markers when a test says so, for what of the CUDA path is not the device's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchtop.probe import clock, facts, runtime


class FakeEvent:
    """An event of a device that passes markers when the test says so, or at once."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.at: float | None = None

    def record(self, stream: object) -> None:
        self._gpu.recorded.append((self, stream))
        self.at = self._gpu.now() if self._gpu.now is not None else None

    def query(self) -> bool:
        self._gpu.queries += 1
        return self.at is not None

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self.at is not None
        assert later.at is not None
        return later.at - self.at


class FakeGpu:
    """As much of ``torch`` as the clock uses.

    Args:
        now: the device's clock, in milliseconds, where it passes markers at once.
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.recorded: list[tuple[FakeEvent, object]] = []
        self.queries = self.made = 0
        self.stream = "stream of {}"
        self.now = now
        self.cuda = self

    def current_stream(self, device: int) -> object:
        return self.stream.format(device)

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802
        assert enable_timing
        self.made += 1
        return FakeEvent(self)

    def passes(self, count: int, ms: float = 1.0) -> None:
        """The device passes the next `count` markers, `ms` apart."""
        waiting = [event for event, _ in self.recorded if event.at is None]
        last = max((event.at for event, _ in self.recorded if event.at is not None), default=50.0)
        for event in waiting[:count]:
            last += ms
            event.at = last


def pretend(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> None:
    """Have a probe take its rank for one of this GPU."""
    device: dict[str, Any] = {"type": "cuda", "index": 0, "name": "fake", "uuid": None}
    monkeypatch.setattr(runtime.Probe, "_cuda_index", lambda *_: 0)
    monkeypatch.setattr(runtime.Probe, "memory", lambda *_: None)
    monkeypatch.setattr(runtime, "CudaClock", lambda _torch, index: clock.CudaClock(gpu, index))
    monkeypatch.setattr(facts, "versions", lambda *_: {})
    monkeypatch.setattr(facts, "device", lambda *_: device)
