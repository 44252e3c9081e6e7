"""From a stream of markers to steps and their phases. Pure: no torch, no clock.

Markers, in the order of a plain loop: D0 D1 around a batch's arrival (DX where the epoch ended
instead; E0 E1 EX where it is for evaluation), B0 at the start of backward, BC where its compute is
done (nBC and nB1 for backward passes nested in it, as in reentrant checkpointing), B1 where the
compute stream may go on, O0 O1 around an optimizer's step, S0 S1 around a ``torch.save``, and Q
before the B0 of a batch that another thread has fetched. The segments between consecutive markers
tile the time line, so phases always sum to the step.

P0 and P1, with a name, begin and end a phase of the script's own. They lie within the segments and
cut none.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..session.records import PHASES, UNKNOWN
from .clock import Mark

_PHASE: Dict[str, Dict[Optional[str], str]] = {
    # marker passed: {next marker: phase of the segment between them; None: any other}
    "D0": {"D1": "data", None: "other"},
    # O0: of an optimizer that is given a closure, in which forward and backward are.
    "D1": {"B0": "forward", "O0": "forward", "S0": "forward", "Q": "forward", None: "other"},
    # Where a loader fetches one batch ahead, the last one is trained on after the end.
    "DX": {"B0": "forward", "O0": "forward", "Q": "unknown", None: "other"},
    "E0": {None: "other"},
    "E1": {None: "other"},
    "EX": {None: "other"},
    "Q": {"B0": "forward", None: "other"},
    "B0": {None: "backward"},
    "nBC": {None: "exposed_comm"},
    "nB1": {None: "backward"},
    "BC": {None: "exposed_comm"},
    "B1": {"O0": "pre_optimizer", "B0": "forward", "Q": "unknown", None: "other"},
    "O0": {"O1": "optimizer", "B0": "forward", "Q": "unknown", None: "optimizer"},
    "O1": {
        "B0": "forward",
        "O0": "pre_optimizer",
        "O1": "optimizer",
        "Q": "unknown",
        None: "other",
    },
    "S0": {None: "other"},
    "S1": {"B0": "forward", "Q": "unknown", None: "other"},
}
# The end of an optimizer that calls backward itself (LBFGS), or of one that a scaler held back.
_PHASE["B1"]["O1"] = "optimizer"

_ALL = (*PHASES, UNKNOWN)

_OWN = ("P0", "P1")

_EVALUATION = {"D0": "E0", "D1": "E1", "DX": "EX"}

_NO_OPTIMIZER = 64
"""Backward passes without an optimizer step after which there is none that the hooks can see: more
micro-batches than are accumulated in practice. Where more were, it is twice as many."""

_HIDDEN_OPTIMIZER = 8
"""The same where the code around the first of them is compiled, which leaves the hooks out."""

_NO_LOADER = 64
"""Optimizer steps without a batch after which training has left its loader. Reinforcement learning
takes dozens of steps on what one batch led to; each such batch doubles this."""

_MOST_MARKS = 4096
"""Markers of one step: more than the micro-batches of any accumulation make. A step of more (a
loader that is gone through without training, say) is counted and not measured."""

Row = Dict[str, Any]
Sink = Callable[[int, Sequence[Mark]], None]


class StepAssembler:
    """Cuts the marker stream into steps, as the host passes the markers.

    A step ends with its last synchronising backward (``B1`` with extra True; False where it was
    kept from it, None where nothing ever synchronises); where none does, with the last optimizer
    step; and where there is no optimizer either, with the next batch. That it was the last is known
    once the next batch is asked for, or, in loops without a loader, once the next backward begins:
    until then the candidate is held.

    Args:
        sink: called with the number of each finished step and its markers: the one that ended the
            step before, and on to the one that ends it. Step 0, which began before the probe could
            see it, has no number that is told.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.step = 0
        """The step under way: how many have ended since the first backward."""
        self.marks: List[Mark] = []
        """Since the end of the last step, which is the first of them once there was one."""
        self._whole = False
        """Whether the first of them is that end."""
        self.end: Optional[int] = None
        """Where among them the step ends, as far as is known: the next marker belongs to the step
        after the one under way."""
        self._end_is_sync = False
        self.ends_late = False
        """Whether a step was ever found to go on after its end had been held: several models take
        their turns in one."""
        self.heeds_backward = True
        """Whether a ``B0`` may cut a step; otherwise it matters to those that are measured only."""
        self._optimizer_stepped = False
        self._no_optimizer = _NO_OPTIMIZER
        self._backwards = 0
        self.backward_seen = False
        """Whether the step under way has had a backward pass."""
        self._kept_from_sync = False
        self._held = {"D0": 0, "B0": 0}
        """Micro-batches since the last step, each of which may have been a step: as they are told
        by their data, and by their backward passes."""
        self._uses_loader = False
        self._loader_seen = False
        self._since_batch = 0
        self._patience = _NO_LOADER
        self.cycle: Sequence[Mark] = ()
        """The markers from the one that closed the last step but one to before the one that closed
        the last: a step as the hooks see it. Empty where that is not known."""
        self._closed_at: Optional[int] = None
        self._skipped = 0
        """Steps before the one under way that are told with it."""

    @property
    def last(self) -> Optional[Mark]:
        """The last marker, if it belongs to the step under way."""
        return self.marks[-1] if self.marks else None

    def add(self, mark: Mark) -> None:
        """Take in the next marker.

        ``D1``, ``BC``, ``O0`` and, where `heeds_backward` is not set, ``B0`` begin and end nothing:
        a step that is not measured need not have them.
        """
        # Flat, for this is done several times a step with cold caches, where each call costs.
        code = mark.code
        marks = self.marks
        marks.append(mark)
        if code == "D0":
            if self._since_batch >= self._patience:
                self._patience *= 2  # training had not left its loader: it only took long
            self._loader_seen, self._since_batch = True, 0
            if self.backward_seen:
                self._close(code)
        elif code == "B1":
            extra = mark.extra
            self._backwards += 1
            self.backward_seen = True
            self._kept_from_sync = extra is False
            if extra:
                self._end_here(sync=True)
        elif code == "O1":
            self._optimizer_stepped = True
            self._no_optimizer = max(self._no_optimizer, _NO_OPTIMIZER, 2 * self._backwards)
            self._backwards = 0
            self._since_batch += 1
            if self._since_batch >= self._patience:
                self.heeds_backward = True
            if self.end is None or not self._end_is_sync:
                self._end_here(sync=False)
        elif code == "B0" and self.heeds_backward:
            if self._uses_loader and self._since_batch >= self._patience:
                self._leave_loader()
            if not self._uses_loader and self.backward_seen:
                self._close(code)
        if len(marks) > _MOST_MARKS:
            self._forget()

    def expect_loader(self) -> None:
        """Batches were fetched before the first marker: steps are told by them from the start."""
        self._uses_loader = True
        self.heeds_backward = False

    def expect_no_optimizer(self) -> None:
        """Before the first: it may be hidden in compiled code."""
        self._no_optimizer = _HIDDEN_OPTIMIZER

    def fed(self, not_by: Sequence[Any], drives: bool) -> Optional[Tuple[int, int]]:
        """A backward pass is about to begin, and it is known what its batches were for.

        Args:
            not_by: sources (the ``extra`` of a D0) whose batches were for evaluation.
            drives: whether a step ends when the next batch is asked for.

        Returns:
            When evaluation began and ended, on the host's clock; None where there was none.
        """
        if not drives:
            self._uses_loader = self._loader_seen = False
            self.heeds_backward = True
        source, stretch, evaluated = None, None, False
        for mark in self.marks if not_by else ():
            if mark.code not in _EVALUATION:
                continue
            source = mark.extra if mark.code == "D0" else source
            if evaluated and stretch:
                stretch = (stretch[0], mark.host_ns)
            evaluated = source in not_by
            if evaluated:
                mark.code = _EVALUATION[mark.code]
                stretch = (stretch[0] if stretch else mark.host_ns, mark.host_ns)
        return stretch

    def finish(self) -> None:
        """The process ends: the step that was held as ended will not be continued."""
        if self.end is not None and self._optimizer_stepped:
            self._emit(self.end)
        self._tell_skipped()

    def _leave_loader(self) -> None:
        """Steps were being taken all the while: what was held for one step is none."""
        self._uses_loader = False
        self._tell_skipped()
        self._whole = False

    def _forget(self) -> None:
        """Too many markers: the step goes on, but it will not be measured."""
        self._tell_skipped()
        keep = self.end if self.end is not None else len(self.marks) - 1
        del self.marks[:keep]
        self._closed_at = None
        self.end = None if self.end is None else 0
        self._whole = False

    def _end_here(self, sync: bool) -> None:
        """Hold the last marker as the end of the step, unless a later one replaces it."""
        if self.end is not None:
            self.ends_late = True
        self.end, self._end_is_sync = len(self.marks) - 1, sync

    def _close(self, by: str) -> None:
        """A next iteration begins, after a backward: emit the step that ended, if one did.

        Args:
            by: the marker that tells.
        """
        if not self._optimizer_stepped and (
            self._backwards < self._no_optimizer or self._kept_from_sync
        ):
            self._held[by] += not self._kept_from_sync
            return  # a micro-batch of an accumulation
        held = self._held["D0"] or self._held["B0"]
        if not self._optimizer_stepped and held:  # all of them were steps
            self.step += held
            self._whole = False
        self._held = {"D0": 0, "B0": 0}
        closed_at = self._closed_at
        self.cycle = () if closed_at is None else self.marks[closed_at:-1]
        self._emit(self.end if self.end is not None else len(self.marks) - 1)
        self._optimizer_stepped = self.backward_seen = False
        self._uses_loader, self._loader_seen = self._loader_seen, False
        self.heeds_backward = not self._uses_loader
        self._closed_at = len(self.marks) - 1

    def skip(
        self, steps: int, optimizer_steps: int, aside: Sequence[Mark], marks: Sequence[Mark]
    ) -> None:
        """Steps have gone as the one before, and were counted off right after that was closed.

        They are told together with the step under way, which is not measured either.

        Args:
            steps: how many; none is as good.
            optimizer_steps: those that the optimizers have taken since the last batch.
            aside: markers that begin and end nothing, with what is to be told of these steps.
            marks: those of the step under way, from the one that closed the last.
        """
        if steps:
            self.step += steps
            self._skipped += steps
            self._since_batch += optimizer_steps
            del self.marks[1:]
            self._closed_at = 1 + len(aside)
            aside = [*aside, marks[0]]  # which has closed a step already
        self.marks += aside
        for mark in marks[1:]:
            self.add(mark)

    def _tell_skipped(self) -> None:
        """What is under way may never be told."""
        steps, self._skipped = self._skipped, 0
        if steps and self._closed_at is not None:
            end = Mark()
            end.code, end.host_ns = "O1", self.marks[self._closed_at].host_ns
            end.steps = steps
            self._sink(self.step - steps, [*self.marks[: self._closed_at], end])

    def _emit(self, end: int) -> None:
        step, whole, marks, skipped = self.step, self._whole, self.marks, self._skipped
        self.step, self._whole, self.end = step + 1, True, None
        self.marks = marks[end:]
        if skipped:
            self._skipped = 0
            marks[end].steps += skipped
        if whole:
            del marks[end + 1 :]
            self._sink(step - skipped, marks)


def row_of(step: int, marks: Sequence[Mark]) -> Row:
    """A step as a row of the ``steps`` record.

    Args:
        step: its number.
        marks: its markers, from the end of the step before to its own.

    Returns:
        step, end_ns, host_us, samples, tokens; steps, where it stands for several that were counted
        off, of which `step` is the first; and, where the device's times are known, the phases on
        its clock (``_us``) and the host's (``_host_us``), the lag at the end of each
        (``lag_..._us``) and lag_width_us.
    """
    start, end = marks[0], marks[-1]
    row: Row = {
        "step": step,
        "end_ns": _left_ns(end),
        "host_us": (_left_ns(end) - _left_ns(start)) // 1000,
        "samples": _sum(marks, 0),
        "tokens": _sum(marks, 1),
    }
    if end.steps > 1:
        row["steps"] = end.steps
    elif all(mark.device_ns is not None for mark in marks):
        _measure(marks, row)
    return row


def _left_ns(mark: Mark) -> int:
    """When the host went on from a marker.

    A full launch queue holds it up in the record of the marker before a fetch as well, which is no
    wait for a batch: data_host_us is the time inside next() alone.
    """
    return mark.host_ns + (mark.held_ns if mark.code == "D0" else 0)


def _measure(marks: Sequence[Mark], row: Row) -> None:
    """Fill in what the device's times tell."""
    device: Dict[str, int] = dict.fromkeys(_ALL, 0)
    host: Dict[str, int] = dict.fromkeys(_ALL, 0)
    lag: Dict[str, Optional[int]] = dict.fromkeys(_ALL)
    previous = marks[0]
    for mark in marks[1:]:
        if mark.code in _OWN:
            continue
        names = _PHASE[previous.code]
        phase = names.get(mark.code) or names[None]
        device[phase] += mark.device_ns - previous.device_ns  # type: ignore[operator]
        host[phase] += _left_ns(mark) - _left_ns(previous)
        lag[phase] = mark.lag_ns
        previous = mark
    row["lag_width_us"] = previous.width_ns // 1000
    # Rounded as running sums, so that the columns add up to the step.
    passed_ns = told_us = 0
    for phase in _ALL:
        passed_ns += device[phase]
        row[phase + "_us"] = passed_ns // 1000 - told_us
        row[phase + "_host_us"] = host[phase] // 1000
        late = lag[phase]
        row["lag_" + phase + "_us"] = None if late is None else late // 1000
        told_us = passed_ns // 1000


def _sum(marks: Sequence[Mark], place: int) -> Optional[int]:
    """Samples (0) or tokens (1) of the batches that arrived between the markers."""
    total: Optional[int] = None
    for mark in marks:
        if mark.code in ("D1", "Q") and mark.extra and mark.extra[place] is not None:
            total = (total or 0) + mark.extra[place]
    return total
