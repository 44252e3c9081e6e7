"""From a stream of markers to steps and their phases. Pure: no torch, no clock.

Markers, in the order of a plain loop: D0 D1 around a batch's arrival (E0 E1 where gradients are
off: evaluation; DX where the epoch ended instead), B0 at the start of backward, BC where its
compute is done (nBC and nB1 for backward passes nested in it, as in reentrant checkpointing), B1
where the compute stream may go on, O0 O1 around an optimizer's step. The segments between
consecutive markers tile the time line, so phases always sum to the step.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from ..session.records import PHASES
from .clock import Mark

_PHASE: Dict[str, Dict[Optional[str], str]] = {
    # marker passed: {next marker: phase of the segment between them; None: any other}
    "D0": {"D1": "data", None: "other"},
    "D1": {"B0": "forward", None: "other"},
    "DX": {None: "other"},
    "E0": {None: "other"},
    "E1": {None: "other"},
    "B0": {None: "backward"},
    "nBC": {None: "exposed_comm"},
    "nB1": {None: "backward"},
    "BC": {None: "exposed_comm"},
    "B1": {"O0": "pre_optimizer", "B0": "forward", None: "other"},
    "O0": {"O1": "optimizer", "B0": "forward", None: "optimizer"},
    "O1": {"B0": "forward", "O0": "pre_optimizer", "O1": "optimizer", None: "other"},
}
# The end of an optimizer that calls backward itself (LBFGS), or of one that a scaler held back.
_PHASE["B1"]["O1"] = "optimizer"

_NO_OPTIMIZER = 64
"""Backward passes before the first optimizer step after which there is none that the hooks can
see: more micro-batches than are accumulated in practice."""

_NO_LOADER = 64
"""Optimizer steps without a batch after which training has left its loader. Reinforcement learning
takes dozens of steps on what one batch led to; each such batch doubles this."""

Row = Dict[str, Any]


class StepAssembler:
    """Cuts the marker stream into steps.

    A step ends with its last synchronising backward (``B1`` with extra True; False where it was
    kept from it, None where nothing ever synchronises); where none does, with the last optimizer
    step; and where there is no optimizer either, with the next batch. That it was the last is known
    once the next batch is asked for, or, in loops without a loader, once the next backward begins:
    until then the candidate is held.

    Args:
        sink: called with each finished step: step, end_ns, host_us, the phase columns on the
            device's clock (``_us``) and on the host's (``_host_us``), lag_forward_us,
            lag_backward_us, lag_width_us, samples, tokens.
    """

    def __init__(self, sink: Callable[[Row], None]) -> None:
        self._sink = sink
        self._step = -1
        self._previous: Optional[Mark] = None
        self._start: Optional[Mark] = None
        self._open = _Step()
        self._ended: Optional[Tuple[Mark, _Step, bool]] = None
        self._optimizer_stepped = False
        self._optimizer_known = False
        self._backwards = 0
        self._backward_seen = False
        self._kept_from_sync = False
        self._uses_loader = False
        self._loader_seen = False
        self._since_batch = 0
        self._patience = _NO_LOADER

    @property
    def step(self) -> int:
        """The step under way: how many have ended since the first backward."""
        return self._step + 1

    def add(self, mark: Mark) -> None:
        """Take in the next resolved marker."""
        previous, self._previous = self._previous, mark
        if previous is not None:
            names = _PHASE[previous.code]
            self._open.add(names.get(mark.code) or names[None], previous, mark)
        if mark.code == "D0":
            self._batch_asked_for()
        elif mark.code == "B0" and self._uses_loader and self._since_batch >= self._patience:
            self._leave_loader()
        if mark.code == "D0" or (mark.code == "B0" and not self._uses_loader):
            self._close(mark)
        self._open.note(mark)
        if mark.code == "O1":
            self._optimizer_stepped = self._optimizer_known = True
            self._since_batch += 1
            if self._ended is None or not self._ended[2]:
                self._end_here(mark, sync=False)
        elif mark.code == "B1":
            self._backwards += mark.extra is not False
            self._backward_seen = True
            self._kept_from_sync = mark.extra is False
            if mark.extra:
                self._end_here(mark, sync=True)

    def expect_loader(self) -> None:
        """Batches were fetched before the first marker: steps are told by them from the start."""
        self._uses_loader = True

    def _batch_asked_for(self) -> None:
        if self._since_batch >= self._patience:
            self._patience *= 2  # training had not left its loader: it only took long
        self._loader_seen, self._since_batch = True, 0

    def _leave_loader(self) -> None:
        """Steps were being taken all the while: what was held for one step is none."""
        self._uses_loader = False
        self._start = None

    def finish(self) -> None:
        """The process ends: the step that was held as ended will not be continued."""
        if self._ended is not None and self._optimizer_stepped:
            self._emit(self._ended[0], self._ended[1])
            self._ended = None

    def _end_here(self, mark: Mark, sync: bool) -> None:
        """Hold this marker as the end of the step, unless a later one replaces it."""
        step = self._open if self._ended is None else self._ended[1].joined(self._open)
        self._ended = (mark, step, sync)
        self._open = _Step()

    def _close(self, mark: Mark) -> None:
        """A next iteration begins: emit the step that ended, if one did."""
        more = self._optimizer_known or self._backwards < _NO_OPTIMIZER or self._kept_from_sync
        if more and not self._optimizer_stepped:
            return  # a micro-batch of an accumulation, or a batch without a backward
        if not self._backward_seen:
            return
        if self._ended is None:
            self._end_here(mark, sync=False)
        if self._ended is not None:
            self._emit(self._ended[0], self._ended[1])
        self._ended = None
        self._optimizer_stepped = self._backward_seen = False
        self._uses_loader, self._loader_seen = self._loader_seen, False

    def _emit(self, end: Mark, step: "_Step") -> None:
        start, self._start = self._start, end
        self._step += 1
        if start is None:
            return  # the first step began before the probe could see it
        row: Row = {
            "step": self._step,
            "end_ns": end.host_ns,
            "host_us": (end.host_ns - start.host_ns) // 1000,
            "lag_forward_us": _micro(step.lag_forward),
            "lag_backward_us": _micro(step.lag_backward),
            "lag_width_us": step.lag_width // 1000,
            "samples": step.samples,
            "tokens": step.tokens,
        }
        # Rounded as running sums, so that the columns add up to the step.
        passed_ns = told_us = 0
        for phase in PHASES:
            passed_ns += step.phases[phase]
            row[phase + "_us"] = passed_ns // 1000 - told_us
            row[phase + "_host_us"] = step.host[phase] // 1000
            told_us = passed_ns // 1000
        self._sink(row)


class _Step:
    """What has been seen of one step."""

    __slots__ = (
        "host",
        "lag_backward",
        "lag_forward",
        "lag_width",
        "phases",
        "samples",
        "tokens",
    )

    def __init__(self) -> None:
        self.phases = dict.fromkeys(PHASES, 0)
        self.host = dict.fromkeys(PHASES, 0)
        self.lag_forward: Optional[int] = None
        self.lag_backward: Optional[int] = None
        self.lag_width = 0
        self.samples: Optional[int] = None
        self.tokens: Optional[int] = None

    def add(self, phase: str, start: Mark, end: Mark) -> None:
        self.phases[phase] += end.device_ns - start.device_ns
        self.host[phase] += end.host_ns - start.host_ns

    def note(self, mark: Mark) -> None:
        if mark.code == "B0":
            self.lag_forward, self.lag_width = mark.lag_ns, mark.width_ns
        elif mark.code == "BC":
            self.lag_backward = mark.lag_ns
        elif mark.code == "D1" and mark.extra:
            self.samples = _plus(self.samples, mark.extra[0])
            self.tokens = _plus(self.tokens, mark.extra[1])

    def joined(self, later: "_Step") -> "_Step":
        both = _Step()
        both.phases = {p: self.phases[p] + later.phases[p] for p in PHASES}
        both.host = {p: self.host[p] + later.host[p] for p in PHASES}
        newest = later if later.lag_forward is not None else self
        both.lag_forward, both.lag_width = newest.lag_forward, newest.lag_width
        both.lag_backward = newest.lag_backward
        both.samples = _plus(self.samples, later.samples)
        both.tokens = _plus(self.tokens, later.tokens)
        return both


def _plus(a: Optional[int], b: Optional[int]) -> Optional[int]:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _micro(nanoseconds: Optional[int]) -> Optional[int]:
    return None if nanoseconds is None else nanoseconds // 1000
