"""One rank's steps: markers as the host passes them, rows once the device has."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple, Union

from ..session.records import is_recorded
from .assemble import Sink, StepAssembler
from .clock import CudaClock, HostClock, Mark
from .coast import Coast, Routine, routine
from .feeding import Fed, Source

_MOST_IN_FLIGHT = 512
"""Steps that the device may be behind: a launch queue holds about a thousand launches, so beyond
this something is wrong."""

Clock = Union[HostClock, CudaClock]
PauseSink = Callable[[str, int, int, int], None]

_FURTHEST = 1024
"""Steps that are counted off at most before one is looked at."""

_MOST_DOUBT = 6
"""Doublings of the steps for which a loop is followed that has not gone as was expected."""

_MAY_END = ("B1", "O1", "D0")
"""Markers that a step may be found to end with, and the next one to begin with."""

_now = time.monotonic_ns


class StepMeter:
    """Passes markers, cuts them into steps, and measures the steps that are recorded.

    Nothing happens before `begin`. On a busy job only the recorded steps have events on the
    device; the others are counted by the host alone, with as few calls as can be: see `coast`.

    Args:
        pause: called with what, step, start_ns and end_ns of a stretch of evaluation.
        coast: what counts off the others.
    """

    def __init__(self, pause: PauseSink, coast: Coast) -> None:
        self.coast = coast
        self.clock: Optional[Clock] = None
        self.stride = 1
        """One in how many steps is recorded; the writer's thread sets it."""
        self.seen: Tuple[Optional[str], int] = (None, _now())
        """The last marker that the host passed, and when; `last`, unless they are counted off."""
        self.full = True
        """Whether markers are measured now: those of a recorded step."""
        self.heeds_backward = True
        """Whether ``B0`` is to be passed also where it is not measured."""
        self.in_flight: Deque[Tuple[int, Sequence[Mark]]] = deque()
        """Steps that the device has not been seen to finish."""
        self.on_turn: Optional[Callable[[int], None]] = None
        """Called with its number when a step begins, if there is anything to call."""
        self._full_at_end = True
        self._sink: Sink = lambda step, marks: None
        self._pause = pause
        self._assembler = StepAssembler(self._ended)
        self._step = 0
        self._this = self._following = True
        """Whether the step under way is recorded, and the one after it."""
        self._evaluates_since: Optional[int] = None
        self._routine: Optional[Routine] = None
        self._doubt = self._doubts_until = 0
        self._aside: List[Mark] = []

    @property
    def step(self) -> int:
        """The step under way: how many have ended since the first backward."""
        coast = self.coast
        return self._assembler.step + (coast.steps if coast.times else 0)

    @property
    def last(self) -> Tuple[Optional[str], int]:
        """The last marker that the host passed, and when; on any thread."""
        if self.coast.times:
            with contextlib.suppress(IndexError):  # it has just ended
                return self.coast.last
        return self.seen

    def begin(self, clock: Clock, sink: Sink, expect_loader: bool) -> None:
        """The first backward: from now on markers count.

        Args:
            clock: the device's.
            sink: called with each finished step's number and its settled markers, in order.
            expect_loader: batches have come from a loader already.
        """
        self.clock, self._sink = clock, sink
        if expect_loader:
            self._assembler.expect_loader()

    def expect_no_optimizer(self) -> None:
        """At the first backward pass: optimizer steps may be hidden."""
        self._assembler.expect_no_optimizer()

    def mark(self, code: str, extra: Any = None) -> bool:
        """Pass a marker.

        Returns:
            Whether it has closed a step, and the markers that follow may be counted off.

        Raises:
            OverflowError: the device is hundreds of steps behind.
        """
        clock = self.clock
        if clock is None:
            return False
        if self.coast.times:
            self.land()
        full = self._full_at_end if code in _MAY_END else self.full
        if full:
            mark = clock.stamp(code, extra)
        else:
            mark = Mark()
            mark.code, mark.extra, mark.host_ns = code, extra, _now()
        self.seen = (code, mark.host_ns)
        if self._evaluates_since is not None and code in ("D0", "B0"):
            self._evaluation_ends(mark.host_ns)
        assembler = self._assembler
        assembler.add(mark)
        turns = assembler.step != self._step
        if turns:
            self._next_step()
        if self._this is not self._following and (turns or code in _MAY_END):
            self._choose()
        self.heeds_backward = assembler.heeds_backward or self._evaluates_since is not None
        return turns and not self._this and not self._following

    def count_off(self, source: Optional[Source], iterator: Callable[[], Any]) -> None:
        """Count off what follows, if it can be told what that is. To be called when `mark` says so.

        Args:
            source: where batches have come from; None where there are none.
            iterator: gives its iterator.
        """
        assembler = self._assembler
        step = assembler.step
        if self.on_turn is not None or step < self._doubts_until:
            return
        known, found = self._routine, routine(assembler.cycle, assembler.marks[0], self._routine)
        self._routine = found
        if known is None or found is None or found[1:] != known[1:] or found.source is not source:
            return
        recorded, stride = step + 2, self.stride
        while recorded < step + _FURTHEST and not is_recorded(recorded, stride):
            recorded += 1
        now_ns = assembler.marks[-1].host_ns
        self.coast.begin(found, now_ns, recorded - 1 - step, iterator)

    def land(self) -> None:
        """Look at markers again, beginning with those of the step under way."""
        assembler, coast = self._assembler, self.coast
        if coast.is_through:
            self._doubt = 0
        else:
            self._doubt = min(self._doubt + 1, _MOST_DOUBT)
            self._doubts_until = assembler.step + coast.steps + 2**self._doubt
        self.seen, steps, optimizer_steps = coast.last, coast.steps, coast.optimizer_steps
        counts, marks = coast.end()
        aside, self._aside = self._aside, []
        if steps:
            aside.append(counts)
        assembler.skip(steps, optimizer_steps, aside, marks)
        if steps:
            self._step = step = assembler.step
            self._this, self._following = False, is_recorded(step + 1, self.stride)
            self.full = self._full_at_end = False
        if self._this is not self._following:
            self._choose()
        self.heeds_backward = assembler.heeds_backward or self._evaluates_since is not None

    def batch_came(self, counts: Any, code: str = "D1") -> None:
        """Pass ``D1``, or ``Q`` of a batch from another thread, with samples and tokens."""
        if self.full or self.clock is None or self.coast.times:
            self.mark(code, counts)
            return
        # It begins and ends no step, so nobody need look at it.
        mark = Mark()
        mark.code, mark.extra, mark.host_ns = code, counts, _now()
        self.seen = (code, mark.host_ns)
        self._assembler.marks.append(mark)

    def own(self, code: str, stacks: Any) -> None:
        """Pass ``P0`` or ``P1``, with the own phases that were open before and are now.

        It begins and ends no step either, and is no place where a rank can be said to be.
        """
        if self.clock is None:
            return
        if self.full:
            mark = self.clock.stamp(code, stacks)
        else:
            mark = Mark()
            mark.code, mark.extra, mark.host_ns = code, stacks, _now()
        if self.coast.times:
            self._aside[:] = [mark]  # the last one tells what is open
        else:
            self._assembler.marks.append(mark)

    def fed(self, fed: Fed) -> None:
        """A backward pass is about to begin, and it is known what its batches were for."""
        if self.coast.times:
            self.land()
        stretch = self._assembler.fed(fed.not_by, fed.drives)
        self.heeds_backward = self.heeds_backward or self._assembler.heeds_backward
        if stretch is not None:
            self._pause("eval", self.step, *stretch)

    @property
    def first_backward(self) -> bool:
        """Whether the step under way has had no backward pass yet."""
        return not self._assembler.backward_seen

    def _next_step(self) -> None:
        """A step has ended. Whether one is recorded is decided once: none is measured in part."""
        self._step = step = self._assembler.step
        self._this, self._following = self._following, is_recorded(step + 1, self.stride)
        self.full = self._full_at_end = self._this
        if self.on_turn is not None:
            self.on_turn(step)

    def _choose(self) -> None:
        """Where a recorded step meets one that is not: whose markers are those that come?"""
        assembler = self._assembler
        held = assembler.end is not None
        late = assembler.ends_late
        self.full = late or (self._following if held else self._this)
        self._full_at_end = late or not held or self._following

    def evaluate(self, begins: bool) -> None:
        """A batch of evaluation is asked for, or has come.

        One stretch of it has one beginning (E0) and one end (E1), however many its batches.
        """
        if self.coast.times:
            self.land()
        clock, last = self.clock, self._assembler.last
        if clock is None:
            return
        goes_on = last is not None and last.code == "E1"
        if begins and not goes_on:
            self.mark("E0")
            if self._evaluates_since is None:
                self._evaluates_since = self.seen[1]
                self.heeds_backward = True
        elif not begins and last is not None and goes_on:
            clock.stamp_again(last)
            self.seen = ("E1", last.host_ns)
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
        clock, flight = self.clock, self.in_flight
        while flight and clock is not None and not clock.paused and clock.resolve(flight[0][1]):
            self._sink(*flight.popleft())

    def finish(self) -> None:
        """The process ends."""
        if self.coast.times:
            self.land()
        self._assembler.finish()
        self.settle()

    def _ended(self, step: int, marks: Sequence[Mark]) -> None:
        if not self.in_flight:
            for mark in marks:
                if mark.event is not None:
                    break
            else:
                self._sink(step, marks)
                return
        if len(self.in_flight) >= _MOST_IN_FLIGHT:
            raise OverflowError("the device is too far behind")
        self.in_flight.append((step, marks))
