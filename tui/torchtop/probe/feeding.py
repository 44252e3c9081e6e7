"""Which loaders feed the training: those whose batches a backward pass follows.

Where evaluation fetches its batches with gradients off, there is nothing to find out. Many loops do
not (they switch gradients off around the model alone), so that only what comes after a batch tells
what it was for. Pure: no torch, no clock.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, NamedTuple, Optional


class Known:
    """A loader, however often it is gone through.

    Args:
        number: see below.
        make: what tells loaders apart beside the data: its class, and the loader's settings.
        data: what it loads, which is not kept alive.

    Attributes:
        number: 0, 1... in order of first use.
        evaluates: whether its batches were last found to be for evaluation.
        passes: how often training has begun to go through it.
        latest: the source of the last such pass.
    """

    def __init__(self, number: int, make: Any = None, data: Any = None) -> None:
        self.number = number
        self._make = make
        self._data: Callable[[], Any] = lambda: None
        self._id = 0
        self._is(data)
        self.evaluates = False
        self.passes = 0
        self.latest: Optional["Source"] = None

    def takes(self, make: Any, data: Any) -> bool:
        """Whether this is the loader of such data: of these, or of some whose like is gone."""
        if make != self._make or (id(data) != self._id and self._data() is not None):
            return False
        self._is(data)
        return True

    def _is(self, data: Any) -> None:
        self._id = id(data)
        try:
            self._data = weakref.ref(data)
        except TypeError:  # a list, say: whether it is still there cannot be told
            self._data = lambda: True


class Source:
    """An iterator over a loader.

    Attributes:
        loader: the loader.
        alive: gives the iterator, or None once it is gone.
        fetched: its batches so far.
        since: how many of them came before the pass under way.
        ended: whether that pass is through.
        gradients: whether they were on when it was last asked; None before.
        feeds: whether training takes its batches; None before a backward has told.
        batch_size: of its loader; None where that has none.
        batches: of a pass; None where that is not known.
        plain: whether its batches are told by the length of their first element.
        facts: what is to be told of it once `feeds` is known.
        counted: whether the pass under way is among its loader's `passes`.
    """

    def __init__(self, loader: Known, alive: Callable[[], Any]) -> None:
        self.loader = loader
        self.alive = alive
        self.fetched = self.since = 0
        self.ended = False
        self.gradients: Optional[bool] = None
        self.feeds: Optional[bool] = None
        self.batch_size: Optional[int] = None
        self.batches: Optional[int] = None
        self.plain = False
        self.facts: Any = None
        self.counted = False

    @property
    def over(self) -> bool:
        """Whether no more batches will come of the pass under way."""
        return self.ended or self.alive() is None

    @property
    def place(self) -> int:
        """Batches of the pass under way."""
        return self.fetched - self.since

    def begin_pass(self) -> None:
        """A batch is asked for after the end: workers that are kept serve the next epoch."""
        self.ended = self.counted = False
        self.since = self.fetched


class _Turn:
    """So many batches of one source, after those of another."""

    def __init__(self, source: Source) -> None:
        self.source, self.since = source, source.fetched
        self.until: Optional[int] = None

    @property
    def count(self) -> int:
        return (self.source.fetched if self.until is None else self.until) - self.since


class Fed(NamedTuple):
    """What a backward pass tells of the batches that came since the last."""

    by: List[Source]
    """The sources that it takes its batches from."""
    not_by: List[Source]
    """The sources whose batches were for something else."""
    drives: bool
    """Whether a step ends when the next batch is asked for: not where they were all made before."""


class Feeding:
    """Follows the order in which sources are asked, to be consulted at the start of backward.

    In a loop over one loader there is nothing to decide, and nothing to do: `unclear` is not set.
    """

    def __init__(self) -> None:
        self.unclear = True
        """Whether the next backward has something to tell."""
        self._turns: List[_Turn] = []
        self._left_over = False
        """Whether the first turn began before the last backward that was consulted."""
        self._latest: Optional[Source] = None
        self._before: List[Source] = []
        self._trained = False

    def turn(self, source: Source) -> None:
        """Batches are asked of another source than last time."""
        self.unclear = True
        self._latest = source
        if self._turns:
            self._turns[-1].until = self._turns[-1].source.fetched
        self._turns.append(_Turn(source))

    def ended(self, source: Source) -> None:
        """A source has no more batches."""
        source.ended = self.unclear = True
        self._latest = source

    def backward(self, elsewhere: bool = False) -> Optional[Fed]:
        """A backward pass begins.

        Args:
            elsewhere: the batches for training come by another thread, as far as is known.

        Returns:
            None where no batch has come since the last.
        """
        self.unclear = False
        turns, left_over = self._turns, self._left_over
        fresh = turns[1:] if left_over else turns[:]
        fed = None
        sources = list(dict.fromkeys(turn.source for turn in fresh))
        if sources or (turns and turns[0].count):
            by, drives = self._feeding(turns, fresh, elsewhere)
            self._before, self._trained = sources, True
            fed = Fed(by, [source for source in sources if source not in by], drives)
        self._turns, self._left_over = turns[-1:], bool(turns)
        for turn in self._turns:
            turn.since = turn.source.fetched
        return fed

    def _feeding(
        self, turns: "List[_Turn]", fresh: "List[_Turn]", elsewhere: bool
    ) -> "tuple[List[Source], bool]":
        going = [turn.source for turn in turns if not turn.source.over]
        if going:
            last = going[-1]
            most = _count(last, fresh) or turns[0].count
            steady = not (turns[0].count and turns[0] not in fresh)
            more = [
                source
                for source in dict.fromkeys(going)
                if source is not last
                and (0 < _count(source, fresh) <= most or (steady and source in self._before))
            ]
            return [*more, last], True
        if elsewhere:
            return [], False
        if self._latest is not None and all(t.source is not self._latest for t in fresh):
            return [self._latest], True  # it has fetched ahead, and has just come to its end
        last = fresh[-1].source if fresh else turns[-1].source
        most = _count(last, fresh) or turns[0].count
        if self._trained and not last.loader.passes and (last.ended or most > 1):
            return [], False  # training has done without: this was evaluation
        more = [
            source
            for source in dict.fromkeys(turn.source for turn in fresh)
            if source is not last and not source.ended and _count(source, fresh) <= most
        ]
        return [*more, last], most == 1


def _count(source: Source, turns: "List[_Turn]") -> int:
    return sum(turn.count for turn in turns if turn.source is source)
