"""The probe of one rank: takes the hooks' calls, keeps the clock, feeds the writer.

Every entry point fails open: whatever goes wrong in here, the probe records why, takes itself out,
and the training goes on.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from . import batch as batches
from . import facts
from .assemble import StepAssembler
from .clock import CudaClock, HostClock
from .scalars import Scalars
from .writer import Writer

_BUCKETS_AT_STEP = 5
"""DDP rebuilds its buckets after the first backward passes."""

_now = time.monotonic_ns


class Probe:
    """One rank's probe; inert until the first backward.

    Args:
        torch: the module, as the script imported it.
        directory: the session's ``ranks`` folder.
    """

    def __init__(self, torch: Any, directory: Path) -> None:
        self.torch = torch
        self.disabled: Optional[str] = None
        self._directory = directory
        self._clock: Union[HostClock, CudaClock, None] = None
        self._writer: Optional[Writer] = None
        self._scalars: Optional[Scalars] = None
        self._assembler = StepAssembler(self._row)
        self._thread = threading.main_thread().ident
        self._device_index: Optional[int] = None
        self._waiting_facts: List[Dict[str, Any]] = []
        self._loaders: Dict[int, int] = {}
        self._iterator: Any = None
        self._undescribed = False
        self._models: List[Any] = []
        self._optimizers: Dict[int, bool] = {}
        self._buckets_told = False
        self._last = ("D0", _now())
        self._cost_ns = 0
        self._cost_from = (0, 0, 0)

    # -- the loader ------------------------------------------------------------------------------

    def fetch(self, original: Any, iterator: Any) -> Any:
        """Fetch a batch with the original ``__next__``, between its markers."""
        if self.disabled or threading.get_ident() != self._thread:
            return original(iterator)
        start = _now()
        train = self.torch.is_grad_enabled()
        self._mark("D0" if train else "E0")
        self._cost_ns += _now() - start
        try:
            batch = original(iterator)
        except BaseException:
            self._mark("DX")
            raise
        start = _now()
        self._mark("D1" if train else "E1", self._look(iterator, batch, train))
        self._cost_ns += _now() - start
        return batch

    def _look(self, iterator: Any, batch: Any, train: bool) -> Any:
        """Samples and tokens of the batch; facts of its loader the first time it is seen."""
        try:
            if self._iterator is None or self._iterator() is not iterator:
                self._tell_loader(iterator, batch, train)
            return batches.count(batch, self.torch) if train else None
        except Exception as error:
            self.disable(error)
            return None

    def _tell_loader(self, iterator: Any, batch: Any, train: bool) -> None:
        if train:
            self._iterator = weakref.ref(iterator)
        key = id(getattr(iterator, "_index_sampler", iterator))
        number = self._loaders.setdefault(key, len(self._loaders))
        first = batches.describe(batch, self.torch)
        self._fact(
            "loader", loader=number, train=train, first_batch=first, **facts.loader(iterator)
        )

    # -- backward and optimizer ------------------------------------------------------------------

    def backward_begins(self, tensors: Any, nested: bool) -> None:
        """At the entry of ``torch.autograd.backward``; `nested` in another backward pass."""
        if self.disabled:
            return
        start = _now()
        try:
            root = tensors if isinstance(tensors, self.torch.Tensor) else next(iter(tensors), None)
            if not nested:
                if self._clock is None:
                    self._begin(root)
                elif threading.get_ident() != self._thread:
                    return
                self._clock.refresh_stream()  # type: ignore[union-attr]
                if self._scalars is not None and not self._clock.paused:  # type: ignore[union-attr]
                    self._scalars.poll()
                self._mark("B0")
            self._mark_compute_end(root, "nBC" if nested else "BC")
        except Exception as error:
            self.disable(error)
        self._cost_ns += _now() - start

    def _mark_compute_end(self, root: Any, code: str) -> None:
        """Have `code` passed when this pass's compute is done.

        A callback queued at the very start of backward runs before DDP's own, which is the one
        that makes the compute stream wait for communication.
        """
        node = getattr(root, "grad_fn", None)
        if node is None:
            return
        queue = self.torch.autograd.Variable._execution_engine.queue_callback
        # The engine keeps no order with the hooks of the same node that run later.
        node.register_prehook(lambda _gradients: queue(lambda: self._mark(code)))

    def backward_ends(self, nested: bool) -> None:
        """At the return of ``torch.autograd.backward``."""
        if self.disabled or self._clock is None:
            return
        if nested:
            self._mark("nB1")
            return
        if threading.get_ident() != self._thread:
            return
        start = _now()
        self._mark("B1", self._synchronised())
        self._cost_ns += _now() - start

    def _synchronised(self) -> bool:
        """Whether the backward that ends has synchronised gradients: DDP outside ``no_sync``."""
        models = [model for model in (ref() for ref in self._models) if model is not None]
        if not self._buckets_told and models and self._assembler.step >= _BUCKETS_AT_STEP:
            self._buckets_told = True
            for model in models:
                self._fact("ddp", **{**facts.ddp(model), "buckets": facts.bucket_sizes(model)})
        return any(getattr(model, "require_forward_param_sync", True) for model in models)

    def optimizer_begins(self, optimizer: Any) -> None:
        """Before an optimizer's step."""
        if self.disabled or threading.get_ident() != self._thread:
            return
        start = _now()
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = True
            self._fact("optimizer", **facts.optimizer(optimizer))
        self._mark("O0")
        self._cost_ns += _now() - start

    def optimizer_ends(self) -> None:
        """After an optimizer's step."""
        if self.disabled or threading.get_ident() != self._thread:
            return
        start = _now()
        self._mark("O1")
        self._cost_ns += _now() - start

    def model_made(self, model: Any) -> None:
        """After a DistributedDataParallel module was made."""
        try:
            self._models.append(weakref.ref(model))
            self._fact("ddp", **facts.ddp(model))
        except Exception as error:
            self.disable(error)

    def capturing(self, on: bool) -> None:
        """A CUDA graph capture begins or ends: meanwhile no event is recorded or queried."""
        if self._clock is not None:
            self._clock.paused = on

    # -- what the script tells -------------------------------------------------------------------

    def log(self, scalars: Dict[str, Any]) -> None:
        """``torchtop.log``: see there."""
        if self.disabled or self._scalars is None or self._clock is None or self._clock.paused:
            return
        start = _now()
        try:
            self._scalars.take(self._assembler.step, scalars)
        except Exception as error:
            self.disable(error)
        self._cost_ns += _now() - start

    def tell(self, told: Dict[str, Any]) -> None:
        """Facts of a built-in workload."""
        self._fact("script", **told)

    # -- inside ----------------------------------------------------------------------------------

    def _mark(self, code: str, extra: Any = None) -> None:
        clock = self._clock
        if clock is None or self.disabled:
            return
        try:
            self._last = (code, _now())
            clock.mark(code, extra)
        except Exception as error:
            self.disable(error)

    def _begin(self, root: Any) -> None:
        """The first backward: now the device is known, and this process does train."""
        torch = self.torch
        self._thread = threading.get_ident()
        cuda = bool(getattr(root, "is_cuda", False))
        self._device_index = root.device.index if cuda else None
        who = facts.identity()
        name = "{rank}-{attempt}-{pid}.jsonl".format(pid=os.getpid(), **who)
        header = {**who, **facts.versions(torch, cuda)}
        header["device"] = facts.device(torch, self._device_index)
        self._writer = Writer(self._directory / name, header, self._beat, self._memory, self._cost)
        self._writer.facts.extend(self._waiting_facts)
        self._waiting_facts.clear()
        scalars = self._writer.scalars
        self._scalars = Scalars(lambda *item: scalars.append(item), torch)
        self._clock = (
            CudaClock(self._assembler.add, torch) if cuda else HostClock(self._assembler.add)
        )

    def _row(self, row: Dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.put(row)

    def _fact(self, subject: str, **fields: Any) -> None:
        fact = {"subject": subject, **fields}
        if self._writer is None:
            self._waiting_facts.append(fact)
        else:
            self._writer.facts.append(fact)

    def _beat(self) -> Dict[str, Any]:
        marker, marker_ns = self._last
        iterator = self._iterator() if self._iterator is not None else None
        return {
            "marker": marker,
            "marker_ns": marker_ns,
            "step": self._assembler.step,
            "ready": None if iterator is None else facts.ready(iterator),
        }

    def _memory(self) -> Optional[Dict[str, Any]]:
        if self._device_index is None or self.disabled:
            return None
        stats = self.torch.cuda.memory_stats(self._device_index)
        return {
            "allocated_bytes": stats.get("allocated_bytes.all.current"),
            "reserved_bytes": stats.get("reserved_bytes.all.current"),
            "peak_bytes": stats.get("allocated_bytes.all.peak"),
            "alloc_retries": stats.get("num_alloc_retries"),
        }

    def _cost(self) -> Dict[str, Any]:
        """Host time spent in the probe since the last call, on the training thread."""
        waited = 0 if self._clock is None else self._clock.waited_ns
        cost, at, step = self._cost_ns - waited, _now(), self._assembler.step
        last_cost, last_at, last_step = self._cost_from
        self._cost_from = (cost, at, step)
        return {
            "cost_us": max(0, cost - last_cost) // 1000,
            "steps": step - last_step,
            "cost_share": max(0, cost - last_cost) / (at - last_at) if last_at else None,
            "disabled": self.disabled,
        }

    def disable(self, why: Union[str, BaseException]) -> None:
        """Take the probe out; training goes on."""
        if self.disabled is None:
            text = why if isinstance(why, str) else "{}: {}".format(type(why).__name__, why)
            self.disabled = text[:500]

    def after_fork(self) -> None:
        """In a forked child (a loader's worker, say): this is no rank."""
        self.disabled = "forked"
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def finish(self) -> None:
        """At the end of the process."""
        if self._writer is None or self.disabled == "forked":
            return
        try:
            if self._clock is not None and not self.disabled:
                self._clock.poll()
                self._assembler.finish()
        except Exception as error:
            self.disable(error)
        self._writer.finish()
