"""What is known of the data loaders: their facts, what they are for, how far training has come."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from . import batch as batches
from . import facts
from .feeding import Fed, Feeding, Known, Source

_MOST_ELSEWHERE = 1024
"""Batches that another thread may be ahead of training."""

ELSEWHERE = Source(Known(-1), lambda: None)
"""Stands for the source of a fetch that is not the training thread's."""


class Loaders:
    """Looks at iterators and their batches.

    It keeps no iterator alive: the end of one ends its workers.

    Args:
        torch: the module.
        tell: called with the facts of a loader, by keyword.
    """

    def __init__(self, torch: Any, tell: Callable[..., None]) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._tell = tell
        self._known: List[Known] = []
        self._sources: "weakref.WeakKeyDictionary[Any, Source]" = weakref.WeakKeyDictionary()
        self.source = ELSEWHERE
        """Where the last batch came from..."""
        self.last: Callable[[], Any] = lambda: None
        """...and the iterator, if it is still there."""
        self._untold: List[Source] = []
        self._main: Optional[Source] = None
        self._elsewhere: Deque[Any] = deque(maxlen=_MOST_ELSEWHERE)
        self._fetcher: Optional[int] = None
        self.feeding = Feeding()
        self.elsewhere = False
        """Whether the batches for training are fetched by another thread than the one that
        trains."""
        self.wanted = True
        """Whether the queue is to be looked at: set at each ``beat``, for it takes 5 to 14
        microseconds."""
        self.ready: Optional[int] = None
        """Batches that waited when training last asked for one, or None where there is no queue."""

    # -- on the training thread ------------------------------------------------------------------

    def asked(self, iterator: Any, gradients: bool) -> Source:
        """Before a batch is fetched; `gradients`: whether they are switched on.

        It need not be called where the last batch came from the same iterator, with gradients as
        now, and neither is it through nor is its queue wanted.

        Returns:
            The iterator's source, of which `feeds` is False where it is known to feed evaluation.
        """
        source = self.source
        if self.last() is not iterator or source.gradients is not gradients:
            source = self._turn_to(iterator, gradients)
        if source.ended:
            source.begin_pass()
            self.feeding.turn(source)
        if self.wanted and source.feeds is not False:
            self.wanted = False
            self.ready = facts.ready(iterator)
        return source

    def came(self, iterator: Any, source: Source, batch: Any) -> Any:
        """After a batch was fetched: its samples and tokens."""
        source.fetched += 1
        if source.facts is None:
            self._describe(iterator, source, batch)
            self._untold.append(source)
            if source.feeds is False:
                self._tell_untold()
        if source.plain and type(batch) in (list, tuple) and batch:
            first = batch[0]
            if isinstance(first, self._tensor):
                return first.size(0), None
        return batches.count(batch, self._torch, source.batch_size)

    def count_other(self, batch: Any) -> Any:
        """Samples and tokens of one more batch from where the last came from."""
        return batches.count(batch, self._torch, self.source.batch_size)

    def fed(self) -> Optional[Fed]:
        """At the start of a backward pass, where `feeding` is unclear: what feeds it.

        Returns:
            None where no batch has come since the last.
        """
        fed = self.feeding.backward(self.elsewhere)
        if fed is None:
            return None
        for source in fed.not_by:
            source.feeds, source.loader.evaluates = False, True
        for source in fed.by:
            source.feeds, source.loader.evaluates = True, False
            if not source.counted:
                self._begin_pass(source)
        if fed.by:
            self.elsewhere = False
            self._elsewhere.clear()
            self._main = min(fed.by, key=lambda source: source.loader.number)
        self._tell_untold()
        return fed

    def from_elsewhere(self) -> Any:
        """Samples and tokens of the batch that this backward pass takes, in order of fetching."""
        return self._elsewhere.popleft() if self._elsewhere else None

    def begin(self) -> Optional[Fed]:
        """The first backward pass begins, on this thread: as `fed`."""
        if self._fetcher == threading.get_ident():
            self.elsewhere = False  # it is this thread that has fetched them
        return self.fed()

    def _turn_to(self, iterator: Any, gradients: bool) -> Source:
        """Batches are asked of another iterator than last time."""
        source = self._sources.get(iterator)
        if source is None:
            source = self._found(iterator, gradients)
        self.last, self.source = source.alive, source
        if source.gradients is not gradients:
            source.gradients = gradients
            known_to_evaluate = not gradients or source.loader.evaluates
            source.feeds = False if known_to_evaluate else None
        if gradients:
            self.feeding.turn(source)
        return source

    def _found(self, iterator: Any, gradients: bool) -> Source:
        source = Source(self._loader(iterator, gradients), weakref.ref(iterator))
        self._sources[iterator] = source
        return source

    def _loader(self, iterator: Any, gradients: bool) -> Known:
        """The loader of an iterator: each epoch has an iterator of its own, over the same data.

        Or over data made anew, where those of an earlier epoch are gone.
        """
        data = getattr(iterator, "_dataset", iterator)
        sampler = getattr(iterator, "_index_sampler", None)
        size = str(getattr(sampler, "batch_size", None))
        make = (type(data), size, getattr(iterator, "_num_workers", 0), gradients)
        for known in self._known:
            if known.takes(make, data):
                return known
        known = Known(len(self._known), make, data)
        self._known.append(known)
        return known

    def _begin_pass(self, source: Source) -> None:
        loader, last = source.loader, source.loader.latest
        source.counted, loader.latest = True, source
        # What is asked for one batch alone is not gone through.
        if last is None or last.ended or last.place > 1 or last is source:
            loader.passes += 1

    def _describe(self, iterator: Any, source: Source, batch: Any) -> None:
        told = facts.loader(iterator)
        source.batch_size, source.batches = told["batch_size"], told["batches"]
        source.plain = batches.is_plain(batch, self._torch, source.batch_size)
        first = batches.describe(batch, self._torch)
        source.facts = {"loader": source.loader.number, "first_batch": first, **told}

    def _tell_untold(self) -> None:
        left = []
        for source in self._untold:
            if source.feeds is None:
                left.append(source)
            else:
                self._tell("loader", train=source.feeds, **source.facts)
        self._untold = left

    # -- on other threads ------------------------------------------------------------------------

    def came_elsewhere(self, iterator: Any, batch: Any) -> None:
        """A batch was fetched by another thread than the one that trains."""
        self._fetcher, self.elsewhere = threading.get_ident(), True
        source = self._sources.get(iterator)
        if source is None:
            source = self._found(iterator, gradients=True)
            source.feeds = True
            self._describe(iterator, source, batch)
            self._tell("loader", train=True, elsewhere=True, **source.facts)
        self._elsewhere.append(self.came(iterator, source, batch))

    def finish(self) -> None:
        """The process ends: what no backward pass followed was for evaluation."""
        for source in self._untold:
            source.feeds = False
        self._tell_untold()

    def progress(self, uncounted: int) -> Dict[str, List[Optional[int]]]:
        """How far training has come in the loader that feeds it: fields of a ``beat``.

        Args:
            uncounted: batches that its source does not know of yet.
        """
        source = self._main
        if source is None:
            return {}
        return {
            "loader_at": [
                max(0, source.loader.passes - 1),
                source.place + uncounted,
                source.batches,
            ]
        }
