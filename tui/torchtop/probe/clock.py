"""Markers on the device's clock, resolved without ever synchronising."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional

_MAX_PENDING = 4096
"""Markers in flight: a launch queue holds about a thousand, so beyond this something is wrong."""

_WINDOW_NS = 2_000_000_000
"""How long one clock interval is collected: clocks of host and device drift apart by tens of
microseconds a second at the most, and a window sees enough polls to be narrow."""

_RECORD_NS = 20_000
"""A record takes 2 to 9 microseconds. One that takes longer found the launch queue full: the host
waits for the device there, as it would have at its next launch."""


class Mark(NamedTuple):
    """A marker that the device has passed."""

    code: str
    host_ns: int
    """When the host enqueued it."""
    device_ns: int
    """When the device passed it, since the first marker, on the device's clock."""
    lag_ns: Optional[int]
    """How far the device ran behind the host here; None where unknown, 0 on a CPU."""
    width_ns: int
    """The uncertainty of the lag."""
    extra: Any


class ClockInterval:
    """Where the device's clock lies on the host's, from inequalities alone.

    With `offset` = host time minus device time of one instant: a marker cannot run before it was
    enqueued (offset >= host - device), a query that says done bounds it from above, and a query
    that says not yet bounds it from below. The interval of two successive windows is used, so that
    drift is forgotten.
    """

    def __init__(self) -> None:
        self._lower = [-(2**62), -(2**62)]
        self._upper = [2**62, 2**62]
        self._window_ends = 0

    def add(self, device_ns: int, enqueued_ns: int, not_done_ns: int, done_ns: int) -> None:
        """Take in one marker: when it was enqueued, last seen unfinished (or 0), and seen done."""
        if done_ns > self._window_ends:
            self._window_ends = done_ns + _WINDOW_NS
            self._lower = [self._lower[1], -(2**62)]
            self._upper = [self._upper[1], 2**62]
        self._lower[1] = max(self._lower[1], max(enqueued_ns, not_done_ns) - device_ns)
        self._upper[1] = min(self._upper[1], done_ns - device_ns)

    @property
    def bounds(self) -> Optional["tuple[int, int]"]:
        """The lowest and highest offset, or None before anything is known."""
        low, high = max(self._lower), min(self._upper)
        if low > high:  # drift: trust the newer window
            low, high = self._lower[1], self._upper[1]
        if low < -(2**61) or high > 2**61:
            return None
        return (low, high) if low <= high else (high, low)


class HostClock:
    """The recorder of a CPU rank: the host's clock is the device's."""

    paused = False
    waited_ns = 0

    def __init__(self, sink: Callable[[Mark], None]) -> None:
        self._sink = sink
        self._first: Optional[int] = None

    def mark(self, code: str, extra: Any = None) -> None:
        """Pass a marker; it resolves at once."""
        now = time.monotonic_ns()
        if self._first is None:
            self._first = now
        self._sink(Mark(code, now, now - self._first, 0, 0, extra))

    def refresh_stream(self) -> None:
        """Nothing to look up on a CPU."""

    def poll(self) -> None:
        """Nothing is ever in flight on a CPU."""


class _InFlight:
    __slots__ = ("code", "event", "extra", "host_ns", "not_done_ns")

    def __init__(self, code: str, host_ns: int, event: Any, extra: Any) -> None:
        self.code, self.host_ns, self.event, self.extra = code, host_ns, event, extra
        self.not_done_ns = 0


class CudaClock:
    """The recorder of a CUDA rank: pooled timing events on the compute stream.

    Only the thread that trains calls it (autograd's threads may `mark` while that one waits in
    backward). Events resolve in order, at later markers, by ``query``; the first unfinished one
    ends a poll.

    Args:
        sink: called with each marker that has resolved, in order.
        torch: the module.
        device: CUDA's index of the device whose current stream computes.
    """

    def __init__(self, sink: Callable[[Mark], None], torch: Any, device: int) -> None:
        self.paused = False
        """Set while a CUDA graph is captured: a query then would end the capture."""
        self.waited_ns = 0
        """Host time in records that waited for room in the launch queue: no cost of the probe."""
        self._sink = sink
        self._torch = torch
        # By number: a script that never calls set_device computes on another than the current one.
        self._device = device
        self._stream = torch.cuda.current_stream(device)
        self._pool: List[Any] = []
        self._flight: Deque[_InFlight] = deque()
        self._last: Any = None
        self._device_ns = 0
        self._interval = ClockInterval()

    def refresh_stream(self) -> None:
        """Look the current stream up: once a step, because it costs twice a record."""
        if not self.paused:
            self._stream = self._torch.cuda.current_stream(self._device)

    def mark(self, code: str, extra: Any = None) -> None:
        """Enqueue a marker on the compute stream and resolve what has finished."""
        if self.paused:
            return
        if len(self._flight) >= _MAX_PENDING:
            raise OverflowError("the device is too far behind")
        pool = self._pool
        event = pool.pop() if pool else self._torch.cuda.Event(enable_timing=True)
        now = time.monotonic_ns()
        event.record(self._stream)
        self.waited_ns += max(0, time.monotonic_ns() - now - _RECORD_NS)
        self._flight.append(_InFlight(code, now, event, extra))
        self.poll()

    def poll(self) -> None:
        """Resolve finished markers, in order."""
        flight = self._flight
        while flight and not self.paused:
            oldest = flight[0]
            done = oldest.event.query()
            now = time.monotonic_ns()
            if not done:
                oldest.not_done_ns = now
                return
            flight.popleft()
            self._resolve(oldest, now)

    def _resolve(self, marker: _InFlight, now: int) -> None:
        if self._last is not None:
            # From marker to marker, not from the first: float milliseconds would lose precision.
            self._device_ns += int(self._last.elapsed_time(marker.event) * 1e6)
            self._pool.append(self._last)
        self._last = marker.event
        device_ns = self._device_ns
        self._interval.add(device_ns, marker.host_ns, marker.not_done_ns, now)
        bounds = self._interval.bounds
        lag, width = None, 0
        if bounds is not None:
            width = bounds[1] - bounds[0]
            lag = max(0, device_ns + (bounds[0] + bounds[1]) // 2 - marker.host_ns)
        self._sink(Mark(marker.code, marker.host_ns, device_ns, lag, width, marker.extra))
