"""Markers on the device's clock, resolved without ever synchronising."""

from __future__ import annotations

import time
from typing import Any, List, Optional, Sequence, Tuple

_WINDOW_NS = 2_000_000_000
"""How long one clock interval is collected: clocks of host and device drift apart by tens of
microseconds a second at the most, and a window sees enough polls to be narrow."""

_RECORD_NS = 20_000
"""A record takes 2 to 9 microseconds. One that takes longer found the launch queue full: the host
waits for the device there, as it would have at its next launch."""

_UNKNOWN = 2**62

_now = time.monotonic_ns


class Mark:
    """A marker: passed by the host at once, and by the device when it gets there.

    Attributes:
        code: see `assemble`.
        host_ns: when the host passed it.
        held_ns: how long its record then waited for room in the launch queue.
        device_ns: when the device passed it, since its first marker and on its own clock; None
            while that is not known, and for ever where no event was recorded.
        lag_ns: how far the device ran behind the host here; None where unknown, 0 on a CPU.
        width_ns: the uncertainty of the lag.
        extra: what the hook adds.
        event: the device's event; None on a CPU, once resolved, and where none was recorded.
        not_done_ns: when the device was last seen not to have passed it, or 0.
        done_ns: when it was first seen to have passed it, or 0.
        steps: how many have ended since the marker before the step that it ends.
    """

    # Defaults of the class instead of an __init__: several are made a step.
    code: str
    host_ns: int
    device_ns: Optional[int] = None
    lag_ns: Optional[int] = None
    width_ns = 0
    extra: Any = None
    event: Any = None
    not_done_ns = 0
    done_ns = 0
    held_ns = 0
    steps = 1


class ClockInterval:
    """Where the device's clock lies on the host's, from inequalities alone.

    With `offset` = host time minus device time of one instant: a marker cannot run before it was
    enqueued (offset >= host - device), a query that says done bounds it from above, and a query
    that says not yet bounds it from below. The interval of two successive windows is used, so that
    drift is forgotten.
    """

    def __init__(self) -> None:
        self._lower = [-_UNKNOWN, -_UNKNOWN]
        self._upper = [_UNKNOWN, _UNKNOWN]
        self._window_ends = 0

    def add(self, device_ns: int, enqueued_ns: int, not_done_ns: int, done_ns: int) -> None:
        """Take in one marker: when it was enqueued, last seen unfinished (or 0), and seen done."""
        if done_ns > self._window_ends:
            self._window_ends = done_ns + _WINDOW_NS
            self._lower = [self._lower[1], -_UNKNOWN]
            self._upper = [self._upper[1], _UNKNOWN]
        lower = (enqueued_ns if enqueued_ns > not_done_ns else not_done_ns) - device_ns
        self._lower[1] = max(self._lower[1], lower)
        self._upper[1] = min(self._upper[1], done_ns - device_ns)

    @property
    def bounds(self) -> Optional[Tuple[int, int]]:
        """The lowest and highest offset, or None before anything is known."""
        low, high = max(self._lower), min(self._upper)
        if low > high:  # drift: trust the newer window
            low, high = self._lower[1], self._upper[1]
        if low < -_UNKNOWN // 2 or high > _UNKNOWN // 2:
            return None
        return (low, high) if low <= high else (high, low)


class HostClock:
    """The clock of a CPU rank: the host's is the device's."""

    paused = False
    waited_ns = 0

    def __init__(self) -> None:
        self._first: Optional[int] = None

    def stamp(self, code: str, extra: Any = None) -> Mark:
        """Pass a marker whose time on the device will be asked for."""
        mark = Mark()
        mark.code, mark.extra, mark.host_ns = code, extra, _now()
        if self._first is None:
            self._first = mark.host_ns
        mark.device_ns, mark.lag_ns = mark.host_ns - self._first, 0
        return mark

    def stamp_again(self, mark: Mark) -> None:
        """Pass a marker once more: only the last time counts."""
        mark.host_ns = _now()
        if mark.device_ns is not None and self._first is not None:
            mark.device_ns = mark.host_ns - self._first

    def refresh_stream(self) -> None:
        """Nothing to look up on a CPU."""

    def touch(self, mark: Mark) -> None:
        """Nothing is ever in flight on a CPU."""

    def resolve(self, marks: Sequence[Mark]) -> bool:
        """Whether the device has passed all of them: always."""
        return True


class CudaClock:
    """The clock of a CUDA rank: pooled timing events on the compute stream.

    Only the thread that trains calls it (autograd's threads may `stamp` while that one waits in
    backward). Events are resolved a step at a time, and in order: the step's last one is asked
    whether the device has passed it, and then so has it passed the others.

    Args:
        torch: the module.
        device: CUDA's index of the device whose current stream computes.
    """

    def __init__(self, torch: Any, device: int) -> None:
        self.paused = False
        """Set while a CUDA graph is captured: a query then would end the capture."""
        self.waited_ns = 0
        """Host time in records that waited for room in the launch queue: no cost of the probe."""
        self._torch = torch
        # By number: a script that never calls set_device computes on another than the current one.
        self._device = device
        self._stream = torch.cuda.current_stream(device)
        self._raw_stream = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._raw: Optional[int] = None
        self._streams_differ = False
        """Training moved to another stream: the last marker passed says nothing of the others."""
        self._pool: List[Any] = []
        self._record_event, self._query, self._elapsed = _calls(torch.cuda.Event)
        self._last: Any = None
        self._device_ns = 0
        self._interval = ClockInterval()

    def refresh_stream(self) -> None:
        """Look up whether training has moved to another stream.

        By the handle, where torch tells it: to make a stream object costs 5 to 40 microseconds.
        """
        if self.paused:
            return
        if self._raw_stream is not None:
            raw = self._raw_stream(self._device)
            if raw == self._raw:
                return
            self._raw = raw
        stream = self._torch.cuda.current_stream(self._device)
        if stream != self._stream:
            self._stream, self._streams_differ = stream, True

    def stamp(self, code: str, extra: Any = None) -> Mark:
        """Pass a marker, with an event on the compute stream."""
        mark = Mark()
        mark.code, mark.extra = code, extra
        if self.paused:
            mark.host_ns = _now()
            return mark
        pool = self._pool
        mark.event = event = pool.pop() if pool else self._torch.cuda.Event(enable_timing=True)
        mark.host_ns = start = _now()
        self._record_event(event, self._stream)
        waited = _now() - start - _RECORD_NS
        if waited > 0:
            self.waited_ns += waited
            mark.held_ns = waited
        return mark

    def stamp_again(self, mark: Mark) -> None:
        """Pass a marker once more: only the last time counts."""
        mark.host_ns, mark.not_done_ns, mark.done_ns, mark.held_ns = _now(), 0, 0, 0
        if mark.event is not None and not self.paused:
            self._record(mark)

    def _record(self, mark: Mark) -> None:
        self._record_event(mark.event, self._stream)
        waited = _now() - mark.host_ns - _RECORD_NS
        if waited > 0:
            self.waited_ns += waited
            mark.held_ns = waited

    def touch(self, mark: Mark) -> None:
        """Ask whether the device has passed a marker already: it narrows the clock interval."""
        if mark.event is None or mark.done_ns or self.paused:
            return
        if self._query(mark.event):
            mark.done_ns = _now()
        else:
            mark.not_done_ns = _now()

    def resolve(self, marks: Sequence[Mark]) -> bool:
        """Fill in the times of a step's markers, if the device has passed the last of them.

        Markers without an event keep None. Steps must be asked for in order.

        Returns:
            Whether the step is settled.
        """
        last = next((mark for mark in reversed(marks) if mark.event is not None), None)
        if last is None:
            return True
        self.touch(last)
        if not last.done_ns or (self._streams_differ and not _all_passed(marks)):
            return False
        self._place(marks, last.done_ns)
        bounds = self._interval.bounds
        if bounds is not None:
            offset, width = (bounds[0] + bounds[1]) // 2, bounds[1] - bounds[0]
            for mark in marks:
                if mark.device_ns is not None:
                    mark.lag_ns = max(0, mark.device_ns + offset - mark.host_ns)
                    mark.width_ns = width
        return True

    def _place(self, marks: Sequence[Mark], done_ns: int) -> None:
        """Where passed markers lie on the device's clock; their events are free for others."""
        before, at, elapsed = self._last, self._device_ns, self._elapsed
        for mark in marks:
            event = mark.event
            if event is None:
                continue
            mark.event = None
            if before is not None:
                # From marker to marker, not from the first: float milliseconds lose precision.
                at += int(elapsed(before, event) * 1e6)
                self._pool.append(before)
            before, mark.device_ns = event, at
            self._interval.add(at, mark.host_ns, mark.not_done_ns, mark.done_ns or done_ns)
        self._last, self._device_ns = before, at


def _calls(event: Any) -> Tuple[Any, Any, Any]:
    """record, query and elapsed_time of an event class: those of its base, which is C.

    The class itself wraps each in Python, which costs as much again.
    """
    base: Any = getattr(event, "__bases__", (None,))[0]
    names = ("record", "query", "elapsed_time")
    if all(hasattr(base, name) for name in names):
        return base.record, base.query, base.elapsed_time
    return (
        lambda made, stream: made.record(stream),
        lambda made: made.query(),
        lambda made, later: made.elapsed_time(later),
    )


def _all_passed(marks: Sequence[Mark]) -> bool:
    return all(mark.event.query() for mark in marks if mark.event is not None)
