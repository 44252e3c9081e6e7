"""The probe of one rank: takes the hooks' calls, keeps the facts, feeds the writer.

Every entry point fails open: whatever goes wrong in here, the probe records why, takes itself out,
and the training goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar, Union

from . import facts
from .clock import CudaClock, HostClock
from .loaders import Loaders
from .meter import StepMeter
from .scalars import Scalars
from .writer import Writer

_BUCKETS_AT_STEP = 5
"""DDP rebuilds its buckets after the first backward passes."""

_SHORTEST_COLLECTION_NS = 1_000_000
"""Shorter collections of garbage are part of every program."""

_FORKED = "forked"

_now = time.monotonic_ns

Hook = TypeVar("Hook", bound=Callable[..., Any])


def fail_open(hook: Hook) -> Hook:
    """A hook that does nothing once the probe is out, and takes it out instead of raising."""

    @functools.wraps(hook)
    def guarded(self: "Probe", *args: Any) -> Any:
        if self.disabled is not None:
            return None
        start = _now()
        try:
            return hook(self, *args)
        except Exception as error:
            self.disable(error)
            return None
        finally:
            self._cost_ns += _now() - start

    return guarded  # type: ignore[return-value]


class Probe:
    """One rank's probe; inert until the first backward.

    Args:
        torch: the module, as the script imported it.
        directory: the session's ``ranks`` folder.
        report: called with the reason if the probe takes itself out.
    """

    def __init__(
        self, torch: Any, directory: Path, report: Optional[Callable[[str], None]] = None
    ) -> None:
        self.torch = torch
        self.disabled: Optional[str] = None
        self._directory = directory
        self._report = report
        self._writer: Optional[Writer] = None
        self._scalars: Optional[Scalars] = None
        self._meter = StepMeter(self._row, self._pause)
        self._thread = threading.main_thread().ident
        self._device_index: Optional[int] = None
        self._waiting_facts: List[Dict[str, Any]] = []
        self._loaders = Loaders(torch, self._fact)
        self._models: List[Any] = []
        self._optimizers: Dict[int, bool] = {}
        self._buckets_told = False
        self._collects_since: Optional[int] = None
        self._cost_ns = 0
        self._cost_from = (0, 0, 0)

    # -- the loader ------------------------------------------------------------------------------

    @fail_open
    def fetch_begins(self, iterator: Any) -> Optional[bool]:
        """Before a batch is fetched.

        Returns:
            Whether it is one to train on, or None when the fetch is not the training thread's.
        """
        if not self._in_training_thread():
            return None
        train = bool(self.torch.is_grad_enabled())
        if train:
            self._loaders.look_at_queue(iterator)
            self._meter.mark("D0")
        else:
            self._meter.evaluate(begins=True)
        return train

    @fail_open
    def fetch_ends(self, iterator: Any, batch: Any, train: bool) -> None:
        """After a batch was fetched."""
        counts = self._loaders.look_at_batch(iterator, batch, train)
        if train:
            self._meter.mark("D1", counts)
            self._meter.settle()
        else:
            self._meter.evaluate(begins=False)

    @fail_open
    def fetch_failed(self) -> None:
        """Instead of `fetch_ends`: the epoch is over, or the fetch raised."""
        self._meter.mark("DX")

    # -- backward and optimizer ------------------------------------------------------------------

    @fail_open
    def backward_begins(self, tensors: Any, nested: bool) -> Any:
        """At the entry of ``torch.autograd.backward``; `nested` in another backward pass.

        Returns:
            What `backward_ends` is to be called with, or None when it is not.
        """
        root = self._root(tensors)
        meter = self._meter
        if nested:
            return None if meter.clock is None else self._mark_compute_end(root, "nBC")
        if meter.clock is None:
            if root is None:
                return None
            self._begin(root)
        elif not self._in_training_thread():
            return None
        elif self._device_index is None and getattr(root, "is_cuda", False):
            raise RuntimeError("the first backward ran on the CPU, and a later one on a GPU")
        clock: Any = meter.clock
        meter.settle()
        if self._scalars is not None and not clock.paused:
            self._scalars.poll()
        if meter.stride == 1 or meter.is_full("B0"):
            clock.refresh_stream()
        return self._mark_compute_end(root, "BC") if meter.mark("B0") else ()

    def _root(self, tensors: Any) -> Any:
        """The first of the tensors that a backward starts from, where they can be looked at."""
        if isinstance(tensors, self.torch.Tensor):
            return tensors
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else None
        return first if isinstance(first, self.torch.Tensor) else None

    def _mark_compute_end(self, root: Any, code: str) -> Any:
        """Have `code` passed when this pass's compute is done.

        A callback queued at the very start of backward runs before DDP's own, which is the one
        that makes the compute stream wait for communication.

        Returns:
            A list of the hook's handle, if there is one, to be removed: a graph that is kept is
            gone through again.
        """
        node = getattr(root, "grad_fn", None)
        if node is None:
            return ()
        queue = self.torch.autograd.Variable._execution_engine.queue_callback

        def at_start(_gradients: Any) -> None:
            try:
                queue(lambda: self._compute_ended(code))
            except Exception as error:
                self.disable(error)

        return (node.register_prehook(at_start),)

    @fail_open
    def _compute_ended(self, code: str) -> None:
        self._meter.mark(code)

    @fail_open
    def backward_ends(self, begun: Any, nested: bool) -> None:
        """At the return of ``torch.autograd.backward``, with what `backward_begins` gave."""
        if nested:
            self._meter.mark("nB1")
        else:
            self._meter.mark("B1", self._synchronised())
        for handle in begun:
            handle.remove()

    def _synchronised(self) -> Optional[bool]:
        """Whether the backward that ends has synchronised gradients: DDP outside ``no_sync``.

        Returns:
            None where there is no DDP.
        """
        if not self._buckets_told and self._meter.step >= _BUCKETS_AT_STEP:
            self._buckets_told = True
            for model in self._live_models():
                self._fact("ddp", **{**facts.ddp(model), "buckets": facts.bucket_sizes(model)})
        synchronised = None
        for reference in self._models:
            model = reference()
            if model is not None:
                # By its dictionary: a module looks three places up for an attribute.
                synchronised = model.__dict__.get("require_forward_param_sync", True)
                if synchronised:
                    break
        return synchronised

    def _live_models(self) -> List[Any]:
        return [model for model in (ref() for ref in self._models) if model is not None]

    @fail_open
    def optimizer_begins(self, optimizer: Any) -> None:
        """Before an optimizer's step."""
        if not self._in_training_thread():
            return
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = True
            self._fact("optimizer", **facts.optimizer(optimizer))
        self._meter.touch()
        self._meter.mark("O0")

    @fail_open
    def optimizer_ends(self) -> None:
        """After an optimizer's step."""
        if self._in_training_thread():
            self._meter.mark("O1")

    @fail_open
    def scaler_stepped(self) -> None:
        """After a GradScaler's step, which skips the optimizer's when gradients overflowed."""
        if self._in_training_thread() and self._meter.last[0] != "O1":
            self._meter.mark("O1")

    @fail_open
    def model_made(self, model: Any) -> None:
        """After a DistributedDataParallel module was made."""
        self._models.append(weakref.ref(model))
        self._fact("ddp", **facts.ddp(model))

    def capturing(self, on: bool) -> None:
        """A CUDA graph capture begins or ends: meanwhile no event is recorded or queried."""
        if self._meter.clock is not None:
            self._meter.clock.paused = on

    @fail_open
    def collecting(self, begins: bool) -> None:
        """A garbage collection begins or ends; a long one is a pause."""
        if not self._in_training_thread():
            return
        since, self._collects_since = self._collects_since, _now() if begins else None
        if since is not None and not begins and _now() - since >= _SHORTEST_COLLECTION_NS:
            self._pause("gc", self._meter.step, since, _now())

    @fail_open
    def saved(self, since_ns: int) -> None:
        """``torch.save`` returned, which was called at `since_ns`."""
        if self._in_training_thread():
            self._pause("save", self._meter.step, since_ns, _now())

    def _pause(self, what: str, step: int, start_ns: int, end_ns: int) -> None:
        if self._writer is not None:
            self._writer.pauses.append((what, step, start_ns, (end_ns - start_ns) // 1000))

    @fail_open
    def log(self, scalars: Dict[str, Any]) -> None:
        """``torchtop.log``: see there."""
        clock = self._meter.clock
        if self._scalars is None or clock is None or clock.paused:
            return
        if self._in_training_thread():
            self._scalars.take(self._meter.step, scalars)

    @fail_open
    def tell(self, told: Dict[str, Any]) -> None:
        """Facts of a built-in workload."""
        self._fact("script", **told)

    def _in_training_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _begin(self, root: Any) -> None:
        """The first backward: now the device is known, and this process does train."""
        torch = self.torch
        self._thread = threading.get_ident()
        self._device_index = self._cuda_index(root)
        cuda = self._device_index is not None
        who = facts.identity()
        name = "{rank}-{attempt}-{pid}.jsonl".format(pid=os.getpid(), **who)
        header = {**who, **facts.versions(torch, cuda)}
        header["device"] = facts.device(torch, self._device_index)
        self._writer = Writer(self._directory / name, header, self)
        self._writer.facts.extend(self._waiting_facts)
        self._waiting_facts.clear()
        scalars = self._writer.scalars
        self._scalars = Scalars(lambda *item: scalars.append(item), torch)
        index = self._device_index
        clock = HostClock() if index is None else CudaClock(torch, index)
        self._meter.begin(clock, expect_loader=self._loaders.train)

    def _cuda_index(self, root: Any) -> Optional[int]:
        """CUDA's index of the device that computes; None where that is the CPU.

        A loss that was brought to the CPU belongs to a model that was not.
        """
        parameters = (next(model.module.parameters(), None) for model in self._live_models())
        for tensor in (root, *parameters):
            if getattr(tensor, "is_cuda", False):
                return int(tensor.device.index)
        return None

    def _row(self, row: Dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.put(row)

    def _fact(self, subject: str, **fields: Any) -> None:
        fact = {"subject": subject, **fields}
        if self._writer is None:
            self._waiting_facts.append(fact)
        else:
            self._writer.facts.append(fact)

    # -- what the writer's thread asks for -------------------------------------------------------

    def record_one_in(self, stride: int) -> None:
        """From now on measure one in so many steps."""
        self._meter.stride = stride

    def spent_ns(self) -> int:
        """Host time spent in the probe so far, on the training thread."""
        clock = self._meter.clock
        return self._cost_ns - (0 if clock is None else clock.waited_ns)

    def beat(self) -> Dict[str, Any]:
        """The fields of a ``beat``; a probe that is out has seen no marker lately."""
        marker, marker_ns = (None, None) if self.disabled else self._meter.last
        return {
            "marker": marker,
            "marker_ns": marker_ns,
            "step": self._meter.step,
            "ready": None if self.disabled else self._loaders.ready,
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
        cost, at, step = self.spent_ns(), _now(), self._meter.step
        last_cost, last_at, last_step = self._cost_from
        self._cost_from = (cost, at, step)
        return {
            "cost_us": max(0, cost - last_cost) // 1000,
            "steps": step - last_step,
            "cost_share": max(0, cost - last_cost) / (at - last_at) if last_at else None,
            "disabled": self.disabled,
            "detail": 1 / self._meter.stride,
        }

    def disable(self, why: Union[str, BaseException]) -> None:
        """Take the probe out; training goes on. The first reason stays."""
        if self.disabled is not None:
            return
        text = why if isinstance(why, str) else "{}: {}".format(type(why).__name__, why)
        self.disabled = text[:500]
        if self._report is not None:
            with contextlib.suppress(Exception):
                self._report(self.disabled)

    def after_fork(self) -> None:
        """In a forked child (a loader's worker, say): this is no rank."""
        self.disabled = _FORKED
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def finish(self) -> None:
        """At the end of the process."""
        if self._writer is None or self.disabled == _FORKED:
            return
        try:
            # Also of a probe that is out: the steps that were in flight then are good ones.
            self._meter.settle() if self.disabled else self._meter.finish()
        except Exception as error:
            self.disable(error)
        self._writer.finish()
