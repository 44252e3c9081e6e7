"""What a script tells of itself, by the functions of `torchtop`."""

from __future__ import annotations

import copy
import threading
from typing import Any, Callable, Dict, Optional, Tuple

from .guard import Guarded, fail_open
from .loss import LossWatch
from .meter import StepMeter
from .scalars import Scalars
from .writer import Writer

_MOST_PHASES = 32
"""Own phases by name: a name made of a step's number, say, would have no end."""

_LONGEST_NAME = 40
_LONGEST_TEXT = 200

_MOST_NOTES = 1000
"""Annotations of a run, beyond a burst of which none is kept: they are for eyes."""

_thread = threading.get_ident


class Told(Guarded):
    """The part of the probe that the script calls."""

    meter: StepMeter
    _scalars: Optional[Scalars]
    _writer: Optional[Writer]
    _loss: LossWatch
    _thread: Optional[int]
    _fact: Callable[..., None]
    _names: Dict[str, bool]
    _stack: Tuple[str, ...] = ()
    """The own phases that are open, the innermost last."""
    _notes = 0

    @fail_open
    def log(self, scalars: Dict[str, Any]) -> None:
        """``torchtop.log``: see there."""
        clock = self.meter.clock
        if self._scalars is None or clock is None or clock.paused:
            return
        if _thread() == self._thread:
            self._loss.script_logs(scalars)
            self._scalars.take(self.meter.step, scalars)

    @fail_open
    def tell(self, told: Dict[str, Any]) -> None:
        """Facts of the script, such as its ``total_steps``, as they are now."""
        self._fact("script", **copy.deepcopy(told))

    @fail_open
    def annotate(self, text: str) -> None:
        """``torchtop.annotate``: see there."""
        self._notes += 1
        if self._writer is not None and self._notes <= _MOST_NOTES:
            text = str(text)[:_LONGEST_TEXT]
            self._writer.notes.append(("annotation", {"step": self.meter.step, "text": text}))

    @fail_open
    def phase_begins(self, name: str) -> Optional[bool]:
        """``torchtop.phase`` is entered.

        Returns:
            Whether `phase_ends` is to be called.
        """
        if _thread() != self._thread:
            return None
        name = str(name)[:_LONGEST_NAME]
        if name not in self._names:
            if len(self._names) >= _MOST_PHASES:
                return None
            self._names[name] = True
        before, self._stack = self._stack, (*self._stack, name)
        self.meter.own("P0", (before, self._stack))
        return True

    @fail_open
    def phase_ends(self) -> None:
        """``torchtop.phase`` is left."""
        before, self._stack = self._stack, self._stack[:-1]
        self.meter.own("P1", (before, self._stack))
