"""What is known of the data loaders: the facts of each iterator once, and the batches that wait."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, Optional, Tuple

from . import batch as batches
from . import facts


class Loaders:
    """Looks at iterators and their batches, on the training thread.

    It keeps no iterator alive: the end of one ends its workers.

    Args:
        torch: the module.
        tell: called with the facts of a loader, by keyword.
    """

    def __init__(self, torch: Any, tell: Callable[..., None]) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._tell = tell
        self._numbers: Dict[Tuple[int, bool], int] = {}
        self._batch_size: "weakref.WeakKeyDictionary[Any, Optional[int]]" = (
            weakref.WeakKeyDictionary()
        )
        self._last: Any = None
        self._plain = False
        self.wanted = True
        """Whether the queue is to be looked at: set at each ``beat``, for it takes 5 to 14
        microseconds."""
        self.train = False
        """Whether a batch to train on has come."""
        self.ready: Optional[int] = None
        """Batches that waited when training last asked for one, or None where there is no queue."""

    def look_at_queue(self, iterator: Any) -> None:
        """Before a batch is fetched: how many are there already."""
        self.wanted = False
        self.ready = facts.ready(iterator)

    def look_at_batch(self, iterator: Any, batch: Any, train: bool) -> Any:
        """After a batch was fetched: its samples and tokens, where it is one to train on."""
        if self._last is None or self._last() is not iterator:
            self._turn_to(iterator, batch, train)
        if not train:
            return None
        if self._plain and type(batch) in (list, tuple) and batch:
            first = batch[0]
            if isinstance(first, self._tensor):
                return first.size(0), None
        return batches.count(batch, self._torch, self._batch_size[iterator])

    def _turn_to(self, iterator: Any, batch: Any, train: bool) -> None:
        """Batches come from another iterator than last time."""
        self.train = self.train or train
        if iterator not in self._batch_size:
            self._describe(iterator, batch, train)
        self._last = weakref.ref(iterator)
        self._plain = batches.is_plain(batch, self._torch, self._batch_size[iterator])

    def _describe(self, iterator: Any, batch: Any, train: bool) -> None:
        told = facts.loader(iterator)
        self._batch_size[iterator] = told["batch_size"]
        # Each epoch has an iterator of its own; what stays is the loader's sampler.
        key = (id(getattr(iterator, "_index_sampler", iterator)), train)
        number = self._numbers.setdefault(key, len(self._numbers))
        first = batches.describe(batch, self._torch)
        self._tell("loader", loader=number, train=train, first_batch=first, **told)
