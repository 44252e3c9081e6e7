"""The hooks around the arrival of a batch."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from .feeding import Source
from .guard import Guarded, fail_open
from .loaders import ELSEWHERE, Loaders
from .meter import StepMeter

_thread = threading.get_ident


class Fetches(Guarded):
    """The part of the probe that the data loaders' iterators call."""

    _loaders: Loaders
    meter: StepMeter
    _thread: Optional[int]
    _grad_enabled: Callable[[], bool]

    @fail_open
    def fetch_begins(self, iterator: Any) -> Optional[Source]:
        """Before a batch is fetched.

        Returns:
            Where it comes from, or `ELSEWHERE` when the fetch is not the training thread's.
        """
        if _thread() != self._thread:
            return ELSEWHERE
        gradients, loaders = self._grad_enabled(), self._loaders
        source = loaders.source
        if (
            loaders.last() is not iterator
            or source.gradients is not gradients
            or source.ended
            or loaders.wanted
        ):
            source = loaders.asked(iterator, gradients)
        if source.feeds is False:
            self.meter.evaluate(begins=True)
        elif self.meter.mark("D0", source) and not (loaders.feeding.unclear or loaders.elsewhere):
            self.meter.count_off(source, loaders.last)
        return source

    @fail_open
    def fetch_ends(self, iterator: Any, batch: Any, source: Source) -> None:
        """After a batch was fetched, with what `fetch_begins` gave."""
        counts = self._loaders.came(iterator, source, batch)
        meter = self.meter
        if source.feeds is False:
            meter.evaluate(begins=False)
            return
        meter.batch_came(counts)
        if meter.in_flight:
            meter.settle()

    def fetched_elsewhere(self, iterator: Any, batch: Any) -> None:
        """Instead of `fetch_ends`: as a hook that fails open, but at no cost of training's."""
        try:
            if self.disabled is None:
                self._loaders.came_elsewhere(iterator, batch)
                self.meter.coast.stop_soon()
        except Exception as error:
            self.disable(error)

    @fail_open
    def fetch_failed(self, source: Source) -> None:
        """Instead of `fetch_ends`: the epoch is over, or the fetch raised."""
        self._loaders.feeding.ended(source)
        self.meter.mark("EX" if source.feeds is False else "DX")

    def _fed(self) -> None:
        """Before a backward pass: what the batches since the last one were for."""
        loaders = self._loaders
        if loaders.feeding.unclear:
            fed = loaders.fed()
            if fed is not None:
                self.meter.fed(fed)
        if loaders.elsewhere:
            self.meter.batch_came(loaders.from_elsewhere(), "Q")
