"""The probe of one rank: takes the hooks' calls, keeps the facts, feeds the writer.

Every entry point fails open: whatever goes wrong in here, the probe records why, takes itself out,
and the training goes on.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Union

from . import facts
from .clock import CudaClock, HostClock
from .coast import Coast
from .compute_end import ComputeEnd
from .fetches import Fetches
from .guard import fail_open
from .inspection import Inspection
from .loaders import Loaders
from .loss import LossWatch
from .meter import Clock, StepMeter
from .parts import Parts
from .requests import RequestFile
from .scalars import Scalars
from .told import Told
from .writer import Writer

_SHORTEST_COLLECTION_NS = 1_000_000
"""Shorter collections of garbage are part of every program."""

_NO_RANK = "not a rank"
"""Of a process that has the hooks and is none: a loader's worker, or one forked from a rank."""

_now = time.monotonic_ns
_thread = threading.get_ident


def _nothing() -> None:
    """Of a loop that no loader feeds."""


class Probe(Fetches, Told):
    """One rank's probe; inert until the first backward.

    Args:
        torch: the module, as the script imported it.
        directory: the session's ``ranks`` folder.
        report: called with the reason if the probe takes itself out.
    """

    def __init__(
        self, torch: Any, directory: Path, report: Optional[Callable[[str], None]] = None
    ) -> None:
        super().__init__(report)
        self.torch = torch
        self._grad_enabled = torch.is_grad_enabled
        self._directory = directory
        self._writer: Optional[Writer] = None
        self._scalars: Optional[Scalars] = None
        self._thread = threading.main_thread().ident
        self._device_index: Optional[int] = None
        self._waiting_facts: List[Dict[str, Any]] = []
        self._loaders = Loaders(torch, self._fact)
        self._loss = loss = LossWatch(torch)
        # On a measured step, taking the loss would be part of what is measured.
        coast = Coast(lambda: loss.wanted, self._loaders.count_other)
        self.meter = StepMeter(self._pause, coast)
        self._names = {}
        self._parts = Parts(torch, self._fact)
        self._look_again = True
        """Whether facts may have changed: set now and then by the writer's thread."""
        self._compute_end = ComputeEnd(torch, self._compute_ended, self.disable)
        self._requests: Optional[RequestFile] = None
        self._inspection: Optional[Inspection] = None
        self._collects_since: Optional[int] = None
        self.identify: Callable[[], Optional[Dict[str, Any]]] = facts.identity
        """Which rank this is, asked at the first backward; None where it is none."""
        self.ranks_may_fork = False
        """Whether a process that is forked before the first backward may be a rank itself."""

    # -- backward and optimizer ------------------------------------------------------------------

    @fail_open
    def backward_begins(self, tensors: Any, nested: bool) -> Any:
        """At the entry of ``torch.autograd.backward``; `nested` in another backward pass.

        Returns:
            What `backward_ends` is to be called with, or None when it is not.
        """
        meter = self.meter
        clock, end = meter.clock, self._compute_end
        if nested:
            seen = clock is not None and meter.full
            return end.expect(end.root(tensors), "nBC") if seen else None
        if clock is None:
            root = end.root(tensors)
            clock = None if root is None else self._begin(root)
        elif _thread() != self._thread:
            clock = None
        if clock is None:
            return None
        if meter.coast.times:
            meter.land()
        if self._loaders.feeding.unclear or self._loaders.elsewhere:
            self._fed()
        if meter.in_flight:
            meter.settle()
        scalars = self._scalars
        if scalars is not None and scalars.flight and not clock.paused:
            scalars.poll()
        begun: Any = ()
        if meter.full:
            begun = self._measured_backward_begins(clock, end.root(tensors))
        elif meter.heeds_backward:
            self._heeded_backward_begins()
        else:
            meter.seen = ("B0", _now())
        if self._loss.wanted and meter.first_backward:
            self._take_loss(clock, tensors)
        return begun

    def _measured_backward_begins(self, clock: Clock, root: Any) -> Any:
        if self._device_index is None and getattr(root, "is_cuda", False):
            raise RuntimeError("the first backward ran on the CPU, and a later one on a GPU")
        if self._look_again:
            self._look_again = not self._parts.look_again(root, self.meter.step)
            if self._parts.may_hide_optimizer and not self._parts.optimizers:
                self.meter.expect_no_optimizer()
        clock.refresh_stream()
        self.meter.mark("B0")
        return self._compute_end.expect(root, "BC")

    def _heeded_backward_begins(self) -> None:
        if self.meter.mark("B0") and not self._loaders.elsewhere:
            self.meter.count_off(None, _nothing)

    def _take_loss(self, clock: Clock, tensors: Any) -> None:
        if self._scalars is None or clock.paused:
            return
        alone = isinstance(tensors, self.torch.Tensor) or len(tensors) == 1
        loss = self._loss.of(self._compute_end.root(tensors) if alone else None)
        self._scalars.take(self.meter.step, loss)

    @fail_open
    def _compute_ended(self, code: str) -> None:
        self.meter.mark(code)

    @fail_open
    def backward_ends(self, begun: Any, nested: bool) -> None:
        """At the return of ``torch.autograd.backward``, with what `backward_begins` gave."""
        if nested:
            self.meter.mark("nB1")
        else:
            self.meter.mark("B1", self._parts.synchronised())
        for handle in begun:
            handle.remove()

    @fail_open
    def optimizer_begins(self, optimizer: Any) -> None:
        """Before an optimizer's step."""
        if _thread() != self._thread:
            return
        if id(optimizer) not in self._parts.optimizers:
            self._parts.optimizer_found(optimizer)
        meter = self.meter
        if meter.coast.times:
            meter.land()
        if meter.full:
            meter.touch()
            meter.mark("O0")
        else:
            meter.seen = ("O0", _now())

    @fail_open
    def optimizer_ends(self) -> None:
        """After an optimizer's step."""
        if _thread() == self._thread:
            self.meter.mark("O1")

    @fail_open
    def scaler_stepped(self) -> None:
        """After a GradScaler's step, which skips the optimizer's when gradients overflowed."""
        if _thread() == self._thread and self.meter.last[0] != "O1":
            self.meter.mark("O1")

    @fail_open
    def model_made(self, model: Any) -> None:
        """After a DistributedDataParallel module was made."""
        self._parts.model_made(model, self.meter.step)
        self._look_again = True

    def capturing(self, on: bool) -> None:
        """A CUDA graph capture begins or ends: meanwhile no event is recorded or queried."""
        if self.meter.clock is not None:
            self.meter.clock.paused = on

    @fail_open
    def collecting(self, begins: bool) -> None:
        """A garbage collection begins or ends; a long one is a pause."""
        if _thread() != self._thread:
            return
        since, self._collects_since = self._collects_since, _now() if begins else None
        if since is not None and not begins and _now() - since >= _SHORTEST_COLLECTION_NS:
            self._pause("gc", self.meter.step, since, _now())

    @fail_open
    def save_begins(self) -> None:
        """``torch.save`` is called."""
        if _thread() == self._thread and self.meter.full:
            self.meter.mark("S0")

    @fail_open
    def saved(self, since_ns: int) -> None:
        """``torch.save`` returned, which was called at `since_ns`."""
        if _thread() != self._thread:
            return
        if self.meter.full:
            self.meter.mark("S1")
        self._pause("save", self.meter.step, since_ns, _now())

    @fail_open
    def scaler_made(self, scaler: Any) -> None:
        """After a GradScaler was made."""
        self._loss.scaler_made(scaler)

    def _pause(self, what: str, step: int, start_ns: int, end_ns: int) -> None:
        if self._writer is not None:
            self._writer.pauses.append((what, step, start_ns, (end_ns - start_ns) // 1000))

    def _begin(self, root: Any) -> Optional[Clock]:
        """The first backward: now the device is known, and this process does train.

        Returns:
            None where it is no rank.
        """
        torch = self.torch
        who = self.identify()
        if who is None:
            self.disabled = _NO_RANK
            return None
        self._thread = self.meter.coast.thread = threading.get_ident()
        self._device_index = self._cuda_index(root)
        cuda = self._device_index is not None
        name = "{rank}-{attempt}-{pid}.jsonl".format(pid=os.getpid(), **who)
        header = {**who, **facts.versions(torch, cuda)}
        header["device"] = facts.device(torch, self._device_index)
        self._requests = RequestFile(self._directory)
        self._writer = writer = Writer(self._directory / name, header, self)
        self._inspection = Inspection(torch, cuda, writer.inspections.append)
        writer.facts.extend(self._waiting_facts)
        self._waiting_facts.clear()
        scalars = writer.scalars
        self._scalars = Scalars(lambda *item: scalars.append(item), torch)
        index = self._device_index
        clock: Clock = HostClock() if index is None else CudaClock(torch, index)
        fed = self._loaders.begin()
        loops = fed is not None and bool(fed.by) and fed.drives
        self.meter.begin(clock, writer.put, expect_loader=loops)
        return clock

    def _cuda_index(self, root: Any) -> Optional[int]:
        """CUDA's index of the device that computes; None where that is the CPU.

        A loss that was brought to the CPU belongs to a model that was not.
        """
        parameters = (next(model.module.parameters(), None) for model in self._parts.models())
        for tensor in (root, *parameters):
            if getattr(tensor, "is_cuda", False):
                return int(tensor.device.index)
        return None

    def _fact(self, subject: str, **fields: Any) -> None:
        fact = {"subject": subject, **fields}
        if self._writer is None:
            self._waiting_facts.append(fact)
        else:
            self._writer.facts.append(fact)

    # -- what the writer's thread asks for -------------------------------------------------------

    def attend(self) -> None:
        """Look whether a step is to be inspected."""
        request = self._requests.poll() if self._requests is not None else None
        if request is None or self._inspection is None or self.disabled:
            return
        self._inspection.ask(request)
        if self._inspection.wanted:
            self.meter.on_turn = self._step_begins
            self.meter.coast.stop_soon()

    def _step_begins(self, step: int) -> None:
        if self._inspection is not None:
            self._inspection.step_begins(step)
            if not self._inspection.wanted:
                self.meter.on_turn = None

    def disable(self, why: Union[str, BaseException]) -> None:
        """Take the probe out; training goes on. The first reason stays."""
        super().disable(why)
        self.meter.coast.give_up()
        if self._inspection is not None:
            with contextlib.suppress(Exception):
                self._inspection.stop()

    def record_one_in(self, stride: int) -> None:
        """From now on measure one in so many steps."""
        self.meter.stride = stride

    def spent_ns(self) -> int:
        """Host time spent in the probe so far, on the training thread."""
        meter = self.meter
        waited_ns = 0 if meter.clock is None else meter.clock.waited_ns
        return super().spent_ns() + meter.coast.spent_ns[0] - waited_ns

    def beat(self) -> Dict[str, Any]:
        """The fields of a ``beat``; a probe that is out has seen no marker lately."""
        self._loaders.wanted = self._loss.wanted = True
        marker, marker_ns = (None, None) if self.disabled else self.meter.last
        return {
            "marker": marker,
            "marker_ns": marker_ns,
            "step": self.meter.step,
            "ready": None if self.disabled else self._loaders.ready,
            **self._loaders.progress(self.meter.coast.batches),
        }

    def memory(self) -> Optional[Dict[str, Any]]:
        """The fields of a ``memory`` record, or None on a CPU."""
        if self._device_index is None or self.disabled:
            return None
        stats = self.torch.cuda.memory_stats(self._device_index)
        return {
            "allocated_bytes": stats.get("allocated_bytes.all.current"),
            "reserved_bytes": stats.get("reserved_bytes.all.current"),
            "peak_bytes": stats.get("allocated_bytes.all.peak"),
            "alloc_retries": stats.get("num_alloc_retries"),
        }

    def cost(self) -> Dict[str, Any]:
        """Host time spent in the probe since the last call, on the training thread."""
        self._look_again = True  # this is asked for every few seconds
        return {**self._cost(self.meter.step), "detail": 1 / self.meter.stride}

    def after_fork(self) -> None:
        """In a forked child (a loader's worker, say): this is no rank."""
        if self._writer is None and self.ranks_may_fork:
            self._thread = threading.get_ident()
            return
        self.disabled = _NO_RANK
        self.meter.coast.give_up()
        if self._inspection is not None:
            self._inspection.abandon()
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def finish(self) -> None:
        """At the end of the process."""
        if self._writer is None or self.disabled == _NO_RANK:
            return
        try:
            self._loaders.finish()
            # Also of a probe that is out: the steps that were in flight then are good ones.
            self.meter.settle() if self.disabled else self.meter.finish()
            self._parts.count_collectives(self.meter.step, at_end=True)
            if self._inspection is not None:
                self._inspection.stop()
        except Exception as error:
            self.disable(error)
        self._writer.finish()

    def leaves(self) -> None:
        """``os._exit`` is called, which runs nothing else of what ends a process.

        On another thread it is a watchdog's, which must not wait for what the training one holds.
        """
        if _thread() == self._thread:
            self.finish()
