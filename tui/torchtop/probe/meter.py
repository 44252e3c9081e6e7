"""One rank's steps: markers as the host passes them, rows once the device has."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Optional, Sequence, Tuple, Union

from ..session.records import is_recorded
from .assemble import Row, StepAssembler, row_of
from .clock import CudaClock, HostClock, Mark

_MOST_IN_FLIGHT = 512
"""Steps that the device may be behind: a launch queue holds about a thousand launches, so beyond
this something is wrong."""

Clock = Union[HostClock, CudaClock]
PauseSink = Callable[[str, int, int, int], None]

_MAY_END = ("B1", "O1", "D0")
"""Markers that a step may be found to end with, and the next one to begin with."""

_now = time.monotonic_ns


class StepMeter:
    """Passes markers, cuts them into steps, and measures the steps that are recorded.

    Nothing happens before `begin`. On a busy job only the recorded steps have events on the
    device; the others are counted by the host alone.

    Args:
        sink: called with each finished step's row, in order.
        pause: called with what, step, start_ns and end_ns of a stretch of evaluation.
    """

    def __init__(self, sink: Callable[[Row], None], pause: PauseSink) -> None:
        self.clock: Optional[Clock] = None
        self.stride = 1
        """One in how many steps is recorded; the writer's thread sets it."""
        self.last: Tuple[Optional[str], int] = (None, _now())
        """The last marker that the host passed, and when."""
        self._sink = sink
        self._pause = pause
        self._assembler = StepAssembler(self._ended)
        self._in_flight: Deque[Tuple[int, Sequence[Mark]]] = deque()
        self._recorded_for = (-1, 1)
        self._recorded = (True, True)
        self._evaluates_since: Optional[int] = None

    @property
    def step(self) -> int:
        """The step under way: how many have ended since the first backward."""
        return self._assembler.step

    def is_full(self, code: str) -> bool:
        """Whether a marker is measured: one of a recorded step, or at either end of it."""
        if self.stride == 1:
            return True
        assembler = self._assembler
        key = (assembler.step, self.stride)
        if key != self._recorded_for:
            step, stride = self._recorded_for = key
            self._recorded = (is_recorded(step, stride), is_recorded(step + 1, stride))
        this, following = self._recorded
        if assembler.ends_late or (not assembler.end_is_held and code in _MAY_END):
            return this or following
        return following if assembler.end_is_held else this

    def begin(self, clock: Clock, expect_loader: bool) -> None:
        """The first backward: from now on markers count.

        Args:
            clock: the device's.
            expect_loader: batches have come from a loader already.
        """
        self.clock = clock
        if expect_loader:
            self._assembler.expect_loader()

    def mark(self, code: str, extra: Any = None) -> bool:
        """Pass a marker.

        Returns:
            Whether it is measured.

        Raises:
            OverflowError: the device is hundreds of steps behind.
        """
        clock = self.clock
        if clock is None:
            return False
        full = self.is_full(code)
        mark = clock.stamp(code, extra, full)
        self.last = (code, mark.host_ns)
        if self._evaluates_since is not None and code in ("D0", "B0"):
            self._evaluation_ends(mark.host_ns)
        self._assembler.add(mark)
        return full

    def evaluate(self, begins: bool) -> None:
        """A batch of evaluation is asked for, or has come.

        One stretch of it has one beginning (E0) and one end (E1), however many its batches.
        """
        clock, last = self.clock, self._assembler.last
        if clock is None:
            return
        goes_on = last is not None and last.code == "E1"
        if begins and not goes_on:
            self.mark("E0")
            if self._evaluates_since is None:
                self._evaluates_since = self.last[1]
        elif not begins and last is not None and goes_on:
            clock.stamp_again(last)
            self.last = ("E1", last.host_ns)
        elif not begins:
            self.mark("E1")

    def _evaluation_ends(self, now_ns: int) -> None:
        since, self._evaluates_since = self._evaluates_since, None
        if since is not None:
            self._pause("eval", self.step, since, now_ns)

    def touch(self) -> None:
        """Ask once whether the device has passed the last marker; it narrows the lag's bounds."""
        last = self._assembler.last
        if self.clock is not None and last is not None:
            self.clock.touch(last)

    def settle(self) -> None:
        """Measure the steps that the device has finished, in order."""
        clock, flight = self.clock, self._in_flight
        while flight and clock is not None and not clock.paused and clock.resolve(flight[0][1]):
            self._sink(row_of(*flight.popleft()))

    def finish(self) -> None:
        """The process ends."""
        self._assembler.finish()
        self.settle()

    def _ended(self, step: int, marks: Sequence[Mark]) -> None:
        if len(self._in_flight) >= _MOST_IN_FLIGHT:
            raise OverflowError("the device is too far behind")
        self._in_flight.append((step, marks))
