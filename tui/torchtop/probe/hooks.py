"""Where the probe enters torch: a handful of seams, none of them inside a compiled graph."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, Callable, Optional

from . import old_torch
from .dynamo import leave_alone, tracing
from .loaders import ELSEWHERE
from .runtime import Probe

now = time.monotonic_ns
thread = threading.get_ident

RUNTIME = "_torchtop_runtime"
"""The name under which ``torchtop.log`` finds the probe in ``sys.modules``."""


def install(torch: Any, directory: Path, report: Optional[Callable[[str], None]] = None) -> Probe:
    """Arm the probe in a process that has just imported torch.

    Args:
        torch: the module.
        directory: the session's ``ranks`` folder.
        report: called with the reason if the probe takes itself out.
    """
    probe = Probe(torch, directory, report)
    for patch in (
        _hide,
        _patch_loader,
        _patch_backward,
        _patch_optimizer,
        _patch_scaler,
        _patch_ddp,
        _patch_capture,
        _patch_save,
        _watch_collections,
        _patch_exit,
    ):
        try:
            patch(probe, torch)
        except Exception as error:
            probe.disable("{}: {}".format(patch.__name__, error))
    module = types.ModuleType(RUNTIME)
    for name in ("log", "tell", "annotate", "phase_begins", "phase_ends"):
        setattr(module, name, getattr(probe, name))
    sys.modules[RUNTIME] = module
    os.register_at_fork(after_in_child=probe.after_fork)
    atexit.register(probe.finish)
    return probe


def _hide(probe: Probe, torch: Any) -> None:
    hook: Any = Probe.backward_begins
    leave_alone(torch, __name__.rpartition(".")[0], [hook.__code__])


def _patch_loader(probe: Probe, torch: Any) -> None:
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    fetch = _fetching(probe, torch, base.__next__)
    base.__next__ = fetch  # type: ignore[method-assign]
    # Iterators are their own ``next`` in old releases, where it is a second name of the method.
    if "next" in vars(base):
        base.next = fetch  # type: ignore[attr-defined]


def _fetching(probe: Probe, torch: Any, original: Any) -> Any:
    compiling, fetch_begins, fetch_ends = tracing(torch), probe.fetch_begins, probe.fetch_ends
    coast, codes, times, spent = _counting(probe)
    meter, flight, samples = probe.meter, probe.meter.in_flight, coast.samples
    tensor, gradients = torch.Tensor, torch.is_grad_enabled

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        if compiling():
            return original(self)
        if (
            codes[len(times)] == "D0"
            and coast.iterator() is self
            and coast.gradients is gradients()
            and coast.thread == thread()
        ):
            start, source = now(), coast.source
            try:
                (coast.turn if len(times) == coast.length else times.append)(start)
            except Exception as error:
                probe.disable(error)
            spent[0] += now() - start
        else:
            source = fetch_begins(self)
            if source is None or source is ELSEWHERE:
                return _fetched_aside(probe, original, self, source)
        try:
            batch = original(self)
        except BaseException:
            probe.fetch_failed(source)
            raise
        if codes[len(times)] != "D1":
            fetch_ends(self, batch, source)
            return batch
        start = now()
        try:
            if coast.plain and type(batch) is list and batch and type(batch[0]) is tensor:
                samples[0] += batch[0].size(0)
            else:
                coast.count(batch)
            if flight:
                meter.settle()
        except Exception as error:
            probe.disable(error)
        times.append(start)
        spent[0] += now() - start
        return batch

    return __next__


def _fetched_aside(probe: Probe, original: Any, iterator: Any, source: Any) -> Any:
    batch = original(iterator)
    if source is ELSEWHERE:
        probe.fetched_elsewhere(iterator, batch)
    return batch


def _patch_backward(probe: Probe, torch: Any) -> None:
    original = torch.autograd.backward
    in_backward = old_torch.current_graph_task(torch)
    compiling = tracing(torch)
    begins, ends = probe.backward_begins, probe.backward_ends
    coast, codes, times, spent = _counting(probe)
    meter, flight = probe.meter, probe.meter.in_flight

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        nested = in_backward() != -1
        if codes[len(times)] == "B0" and not nested and coast.thread == thread():
            start = now()
            try:
                (coast.turn if len(times) == coast.length else times.append)(start)
                if flight:
                    meter.settle()
            except Exception as error:
                probe.disable(error)
            spent[0] += now() - start
            begun: Any = ()
        else:
            begun = begins(args[0] if args else kwargs.get("tensors"), nested)
        result = original(*args, **kwargs)
        if codes[len(times)] == "B1" and not nested:
            start = now()
            times.append(start)
            spent[0] += now() - start
        elif begun is not None:
            ends(begun, nested)
        return result

    torch.autograd.backward = backward


def _patch_optimizer(probe: Probe, torch: Any) -> None:
    from torch.optim import optimizer

    compiling, begins, ends = tracing(torch), probe.optimizer_begins, probe.optimizer_ends
    coast, codes, times, spent = _counting(probe)

    def before(instance: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        if codes[len(times)] == "O0" and coast.thread == thread():
            start = now()
            times.append(start)
            spent[0] += now() - start
        else:
            begins(instance)

    def after(instance: Any, args: Any, kwargs: Any) -> None:
        if compiling():
            return
        if codes[len(times)] == "O1" and coast.thread == thread():
            start = now()
            times.append(start)
            spent[0] += now() - start
        else:
            ends()

    old_torch.hook_steps(optimizer, before, after)


def _counting(probe: Probe) -> Any:
    """What hooks count markers off with: a step that is not measured is to cost next to nothing.

    They do it themselves, and look at as few objects as can be: see `coast`.
    """
    coast = probe.meter.coast
    return coast, coast.codes, coast.times, coast.spent_ns


def _patch_scaler(probe: Probe, torch: Any) -> None:
    # The base class of both names; it moved to torch.amp in 2.3.
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    compiling, original, initialise = tracing(torch), scaler.step, scaler.__init__

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(self, *args, **kwargs)
        result = original(self, *args, **kwargs)
        probe.scaler_stepped()
        return result

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        initialise(self, *args, **kwargs)
        probe.scaler_made(self)

    scaler.step, scaler.__init__ = step, __init__


def _patch_ddp(probe: Probe, torch: Any) -> None:
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        probe.model_made(self)

    DistributedDataParallel.__init__ = __init__  # type: ignore[method-assign]


def _patch_capture(probe: Probe, torch: Any) -> None:
    graph = torch.cuda.CUDAGraph
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        probe.capturing(True)
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            probe.capturing(False)
            raise

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        finally:
            probe.capturing(False)

    graph.capture_begin, graph.capture_end = capture_begin, capture_end


def _patch_save(probe: Probe, torch: Any) -> None:
    compiling, original = tracing(torch), torch.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        start = time.monotonic_ns()
        probe.save_begins()
        result = original(*args, **kwargs)
        probe.saved(start)
        return result

    torch.save = save


def _watch_collections(probe: Probe, torch: Any) -> None:
    def collecting(phase: str, info: Any) -> None:
        if info["generation"] > 0:  # the youngest is collected hundreds of times a second
            probe.collecting(phase == "start")

    gc.callbacks.append(collecting)


def _patch_exit(probe: Probe, torch: Any) -> None:
    original = os._exit

    @functools.wraps(original)
    def leave(*args: Any, **kwargs: Any) -> Any:
        try:
            probe.leaves()
        finally:
            original(*args, **kwargs)

    os._exit = leave
