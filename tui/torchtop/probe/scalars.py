"""Scalars of a step, brought to the host without waiting for the device."""

from __future__ import annotations

import contextlib
import numbers
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Tuple

_EVERY_NS = 250_000_000
"""A scalar is taken at most this often: a curve for eyes needs no more."""

_SLOTS = 32


class Scalars:
    """Takes numbers and one-element tensors; gives floats to `sink` once they have arrived.

    Args:
        sink: called with (step, name, value).
        torch: the module.
    """

    def __init__(self, sink: Callable[[int, str, float], None], torch: Any) -> None:
        self._sink = sink
        self._torch = torch
        self._taken_ns: Dict[str, int] = {}
        self.flight: Deque[Tuple[int, str, Any, Any]] = deque()
        """Copies that have not been seen to arrive."""
        self._slots: List[Any] = []
        self._made = 0

    def take(self, step: int, values: Dict[str, Any]) -> None:
        """Take the scalars of a step. What is no scalar is ignored."""
        now = time.monotonic_ns()
        for name, value in values.items():
            if now - self._taken_ns.get(name, -_EVERY_NS) < _EVERY_NS:
                continue
            self._taken_ns[name] = now
            is_tensor = isinstance(value, self._torch.Tensor)
            if is_tensor and value.numel() == 1:
                if value.is_cuda:
                    self._copy(step, name, value)
                else:
                    self._tell(step, name, value.detach())
            elif isinstance(value, numbers.Real):
                self._tell(step, name, value)

    def _tell(self, step: int, name: str, value: Any) -> None:
        # What is complex, or of a device that holds no data, has no float.
        with contextlib.suppress(OverflowError, RuntimeError, TypeError, ValueError):
            self._sink(step, name, float(value))

    def _copy(self, step: int, name: str, value: Any) -> None:
        """Start a copy into pinned memory; it is read when its event has passed."""
        torch = self._torch
        if self._slots:
            slot, event = self._slots.pop()
        elif self._made < _SLOTS:
            self._made += 1
            slot = torch.empty(1, dtype=torch.float32, pin_memory=True)
            event = torch.cuda.Event()
        else:
            return
        with torch.no_grad():
            slot.copy_(value.detach().reshape(1).float(), non_blocking=True)
        event.record(torch.cuda.current_stream(value.device))
        self.flight.append((step, name, slot, event))

    def poll(self) -> None:
        """Read the copies that have arrived. Not while a CUDA graph is captured."""
        while self.flight and self.flight[0][3].query():
            step, name, slot, event = self.flight.popleft()
            self._sink(step, name, float(slot[0]))
            self._slots.append((slot, event))
