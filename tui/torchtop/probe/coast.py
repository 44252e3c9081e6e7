"""Steps that are not measured and go as the one before did: their markers are only counted off.

Every hook of the probe costs the training thread microseconds, for what it touches has left the
caches by the time it is called again. A loop passes the same markers step after step, so that where
the next one is the one that was expected, there is nothing to find out: its time is appended to a
list. Whatever comes instead ends that, and is looked at as ever, with all that led to it.

The functions in `hooks` do the counting themselves, for a call would cost as much again. A marker
is the expected one where ``codes[len(times)]`` says so. All of it is done by the training thread.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from .clock import Mark
from .feeding import Source

Counts = Tuple[Optional[int], Optional[int]]
"""Samples and tokens, each None where not known."""

_LONGEST = 512
"""Markers of a routine: an accumulation of more micro-batches is followed marker by marker."""

_BY_ITS_END = {"B1": ("B0", "B1"), "O1": ("O0", "O1"), "D0": ("D0",), "D1": ("D1",)}
"""Markers of a step that is not measured, each with those that the hooks pass with it."""

_PASSED_BEFORE = ("B0", "O0")
"""Those that a step which is not measured need not have."""

_NOTHING = (None,)

_OF_NO_ACCOUNT = ("B0", "BC", "nBC", "nB1", "O0", "P0", "P1")


class Routine(NamedTuple):
    """What the markers of a step are, from the one that closes the step before.

    Attributes:
        seen: the markers that it was found from.
        codes: the markers that the hooks pass in such a step.
        extras: what they add to each, where it does not change from step to step.
        source: where the batches come from; None where there are none.
        batches: how many come.
        end: which of the markers ends the step.
        stop: which of them is the first that cannot be counted off before a step that is measured.
        backward: which of them is the beginning of its first backward pass.
    """

    seen: List[str]
    codes: Tuple[str, ...]
    extras: Tuple[Any, ...]
    source: Optional[Source]
    batches: int
    end: int
    stop: int
    backward: int


def routine(cycle: Sequence[Mark], end: Mark, before: Optional[Routine]) -> Optional[Routine]:
    """What can be expected after a step.

    Args:
        cycle: its markers, from the one that closed the step before to all before the one that
            closes it.
        end: the one among them that ends it.
        before: what was expected last time, which is returned if it still holds.

    Returns:
        None where it is nothing that could be relied on.
    """
    seen = [mark.code if mark is not end else mark.code + "." for mark in cycle]
    if before is not None and before.seen == seen and cycle[0].extra is before.source:
        return before
    codes: List[str] = []
    extras: List[Any] = []
    at = None
    for mark in cycle:
        passed = _BY_ITS_END.get(mark.code)
        if passed is not None:
            codes += passed
            extras += [None] * (len(passed) - 1)
            extras.append(None if mark.code == "D1" else mark.extra)
        elif mark.code not in _OF_NO_ACCOUNT:
            return None
        if mark is end:
            at = len(codes) - 1
    if at is None or "O1" not in codes or len(codes) > _LONGEST:
        return None
    ends = [place for place, code in enumerate(codes[: at + 1]) if code == "B1"]
    source = cycle[0].extra
    of_one_source = all(extras[n] is source for n, code in enumerate(codes) if code == "D0")
    if not ends or not of_one_source:
        return None
    batches, begins = codes.count("D1"), codes.index("B0")
    # Where several models take their turns, the step may end with any of them.
    takes_turns = codes.count("O1") > 1 or extras.count(True) > 1
    stop = ends[0] if takes_turns else ends[-1]
    return Routine(seen, tuple(codes), tuple(extras), source, batches, at, stop, begins)


class Coast:
    """Counts markers off; where it is not under way, none is expected.

    Args:
        sees_backward: asked before the last step: whether it is to stop before that one's backward
            pass, and not at the end of it.
        count: gives samples and tokens of a batch that cannot be told at a glance.

    Attributes:
        codes: the markers of a step, and once more the first. The list is always the same one.
        times: when the host passed those of the step under way; empty unless it is. The same list,
            too.
        spent_ns: a list with the host time that all counting has taken.
        samples: a list with the samples that have come since it began.
        thread: the training thread.
        iterator: gives what batches are expected from.
        gradients: whether they are to be switched on.
        source: of the iterator, as `feeding` knows it; None where no batches are expected.
        plain: whether batches are told by the length of their first element.
        length: of a step, in markers.
        steps: how many have ended.
        most: how many may end before the last one begins.
    """

    __slots__ = (
        "_count",
        "_ended",
        "_routine",
        "_sees_backward",
        "_stops",
        "_told",
        "codes",
        "gradients",
        "iterator",
        "length",
        "most",
        "plain",
        "samples",
        "source",
        "spent_ns",
        "steps",
        "thread",
        "times",
    )

    def __init__(self, sees_backward: Callable[[], bool], count: Callable[[Any], Counts]) -> None:
        self._sees_backward = sees_backward
        self._count = count
        self.codes: List[Optional[str]] = [None]
        self.times: List[int] = []
        self.spent_ns = [0]
        self.samples = [0]
        self.thread: Optional[int] = None
        self.iterator: Callable[[], Any] = lambda: None
        self.gradients = True
        self.source: Optional[Source] = None
        self.plain = False
        self.length = self.steps = self.most = 0

    def begin(self, expected: Routine, now_ns: int, most: int, iterator: Callable[[], Any]) -> None:
        """A step has just been closed, by the first of the markers that are expected.

        Args:
            expected: what to expect of each step.
            now_ns: when that was.
            most: how many steps may end before the last one begins.
            iterator: gives what batches are expected from; it is not kept alive.
        """
        self._routine = expected
        self._stops = False
        self.steps = self.samples[0] = 0
        self._told: List[Optional[int]] = [None, None]
        self._ended: Counts = (None, None)
        self.iterator, self.source = iterator, expected.source
        if expected.source is not None:
            self.gradients, self.plain = bool(expected.source.gradients), expected.source.plain
        self.most, self.length = most, len(expected.codes)
        self.codes[:] = [*expected.codes, expected.codes[0]]
        self.times[:] = [now_ns]

    def turn(self, now_ns: int) -> None:
        """The first marker comes again: a step has ended."""
        self.times[:] = [now_ns]
        self.steps += 1
        told = self._told
        self._ended = (self.samples[0] if self.plain else told[0]), told[1]
        if self.steps >= self.most:
            self._stops = True
            early = self._routine.backward and self._sees_backward()
            self.codes[self._routine.backward if early else self._routine.stop] = None

    def count(self, batch: Any) -> None:
        """A batch has come that cannot be told at a glance."""
        samples, tokens = self._count(batch)
        if self.plain:
            self.samples[0] += samples or 0
        elif samples is not None:
            self._told[0] = (self._told[0] or 0) + samples
        if tokens is not None:
            self._told[1] = (self._told[1] or 0) + tokens

    @property
    def last(self) -> Tuple[Optional[str], int]:
        """The last marker that was counted off, and when; on any thread, while it is under way."""
        times = self.times[:]
        return self.codes[len(times) - 1], times[-1]

    def stop_soon(self) -> None:
        """Something is to be looked at; on any thread."""
        self.most = 0

    def give_up(self) -> None:
        """Expect nothing any more; on any thread."""
        self.most = 0
        self.codes[:] = [None] * len(self.codes)

    @property
    def batches(self) -> int:
        """How many have come that their source has not counted yet; on any thread."""
        passed = len(self.times)
        if not passed or self.source is None:
            return 0
        routine = self._routine
        return self.steps * routine.batches + routine.codes[:passed].count("D1")

    @property
    def is_through(self) -> bool:
        """Whether it was time to stop; to be asked before `end`."""
        return self._stops and self.codes[len(self.times)] is None

    @property
    def optimizer_steps(self) -> int:
        """Those that the optimizers have taken since the last batch, up to the last step's end."""
        return self.steps * self._routine.codes.count("O1") if self.source is None else 0

    def end(self) -> Tuple[Mark, List[Mark]]:
        """What comes is looked at again.

        Returns:
            A marker that tells the samples and tokens of all steps that have ended, and those of
            the step under way that such a step has to have, from the one that closed the last.
        """
        expected, times = self._routine, self.times
        codes, extras = expected.codes, expected.extras
        told, ended = self._told, self._ended
        marks: List[Mark] = []
        batch = None
        for at, passed_ns in enumerate(times):
            code = codes[at]
            if at == 0 or code not in _PASSED_BEFORE:
                mark = _mark(code, passed_ns, extras[at])
                marks.append(mark)
                if code == "D1":
                    batch = mark
        if batch is not None:
            samples = self.samples[0] if self.plain else told[0]
            batch.extra = _less(samples, ended[0]), _less(told[1], ended[1])
        if self.source is not None:
            self.source.fetched += self.batches
        counts = _mark("D1", times[0], ended)
        self.codes[:] = _NOTHING
        times.clear()
        return counts, marks


def _mark(code: str, host_ns: int, extra: Any = None) -> Mark:
    mark = Mark()
    mark.code, mark.host_ns, mark.extra = code, host_ns, extra
    return mark


def _less(now: Optional[int], before: Optional[int]) -> Optional[int]:
    return None if now is None else now - (before or 0)
