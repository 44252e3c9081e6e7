"""How far a run is, told to torchtop and, now and then, in a line; and when it has done enough."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader

from torchtop_workloads.batches import Batch
from torchtop_workloads.ending import fail

if TYPE_CHECKING:
    from torchtop_workloads.common import Job

PRINT_EVERY = 50
"""Steps between two progress lines: reading the loss for one waits for the GPU."""

LEAST_STEPS = 10
"""Steps after the warm-up at least, however short the time that is asked for."""


class Report:
    """Tells how far the run is: to torchtop how long it will be, and a line now and then.

    Args:
        job: this rank.
        loader: whose length is an epoch.
        **facts: further facts for torchtop, such as ``synthetic_data``.

    Raises:
        SystemExit: the loader has no whole batch.
    """

    def __init__(self, job: Job, loader: DataLoader[Batch], **facts: object) -> None:
        if len(loader) == 0:
            fail(f"the data set is smaller than one batch of {job.options.batch}: lower batch")
        self._job = job
        self._pace = Pace(job) if job.options.seconds and not job.options.steps else None
        self._total: int | None = job.options.steps
        if self._total is None and self._pace is None:
            self._total = job.options.epochs * len(loader)
        self._step = 0
        self._started = self._last = time.perf_counter()
        tell(
            total_steps=self._total,
            training_started_ns=time.monotonic_ns(),
            compile_available=hasattr(torch, "compile"),
            **facts,
        )
        job.say(f"training for {self._length()}, {len(loader)} in an epoch")

    def _length(self) -> str:
        if self._total is not None:
            return f"{self._total} steps"
        return f"about {self._job.options.seconds:g} s after {self._job.options.warmup} steps"

    def step(self, loss: Tensor | None = None) -> bool:
        """Count a finished step.

        Args:
            loss: read (which waits for the device) only where a line is printed; None where the
                script must never wait for the device.

        Returns:
            Whether it was the last.
        """
        self._step += 1
        if self._pace is not None and self._total is None:
            self._total = self._pace.total(self._step)
            if self._total is not None:
                tell(total_steps=self._total)
        done = self._step == self._total
        if self._step % PRINT_EVERY == 0 or done:
            self._print(loss)
        if done:
            seconds = time.perf_counter() - self._started
            self._job.say(f"done: {self._total} steps in {seconds:.1f} s")
        return done

    def _print(self, loss: Tensor | None) -> None:
        if self._job.rank:
            return
        now = time.perf_counter()
        steps = (self._step - 1) % PRINT_EVERY + 1
        milliseconds = (now - self._last) * 1000 / steps
        shown = "" if loss is None else f"  loss {loss.item():.4f}"
        total = "?" if self._total is None else self._total
        self._job.say(f"step {self._step}/{total}{shown}  {milliseconds:.1f} ms a step")
        self._last = now


class Pace:
    """Turns a number of seconds into a number of steps that all ranks agree on.

    The second half of the warm-up tells how long a step takes, since the first may compile.

    Args:
        job: this rank.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._last: int = job.options.warmup
        self._first = self._last // 2
        self._from = 0.0

    def total(self, done: int) -> int | None:
        """How many steps the run has in all, or None while that is not known.

        Args:
            done: steps that are finished; called after each.
        """
        if done == self._first:
            self._from = self._now()
        if done < self._last:
            return None
        each = (self._now() - self._from) / (self._last - self._first)
        steps = max(LEAST_STEPS, math.ceil(self._job.options.seconds / max(each, 1e-6)))
        agreed = torch.tensor(self._last + steps, device=self._job.device)
        if dist.is_initialized():
            dist.broadcast(agreed, 0)
        return int(agreed.item())

    def _now(self) -> float:
        """The time, when the device has done all that was queued."""
        if self._job.device.type == "cuda":
            torch.cuda.synchronize(self._job.device)
        return time.perf_counter()


def tell(**facts: object) -> None:
    """Tell torchtop facts about this script, where it runs under torchtop; else do nothing."""
    runtime = sys.modules.get("_torchtop_runtime")
    receive = getattr(runtime, "tell", None)
    if receive is not None:
        receive(facts)
