"""Trains with a known fault, for a test of what is told about it.

One loop serves all faults of the table in `faults`; they differ in settings. A schedule trains in
several parts, each with a model and loader of its own: with the fault, with its cause taken away
(``fixed``), and with the fault under torch.profiler. Each part tells torchtop which steps it had.
Run one alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.fault_runner --fault F6b --steps 100
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

if not __package__:  # started as a file: find the package around it, after all others
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from torchtop_workloads import common, fault_parts, faults
from torchtop_workloads.fault_contender import Contender
from torchtop_workloads.registry import FAULT_PREFIX

WARM_UP = 10
"""Steps at the start of each part that are not timed: DDP, cuDNN and the loader settle in them."""

DONE = ".done"
"""Suffix of the file beside the gate that appears when the device is no longer needed."""

PROFILED_FROM = (9, 2)
"""The first step under the profiler, without and with loader workers: the profiler takes long to
start, and what workers get ahead meanwhile is to be used up before the warm-up ends."""

MODES = ("fault", "fixed", "profile")

Marker = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Part:
    """A part of the run: so many steps, or so many seconds, or (neither) as the options say."""

    mode: str
    steps: int | None = None
    seconds: float | None = None


def main() -> None:
    """Train until the schedule or the options say stop."""
    fault = _chosen(sys.argv[1:])
    os.environ.update(fault.env)
    _wait_for_gate(sys.argv[1:])
    with common.job(FAULT_PREFIX + fault.code) as job:
        parts = schedule(job.options.schedule) or [Part("fixed" if job.options.fixed else "fault")]
        common.tell(fault=fault.code, synthetic_data=True)
        rival = job.options.contender and fault_parts.is_slow(job, job.options)
        with Contender(str(job.device) if rival else None) as contender:
            first = 0
            for part in parts:
                settings = job.options
                if part.mode == "fixed":
                    settings = SimpleNamespace(**{**vars(settings), **fault.fix})
                contender.set_busy(settings.contender)
                first = train(job, settings, part, first, last=part is parts[-1])


def _chosen(argv: Sequence[str]) -> faults.Fault:
    """The fault that the command line names."""
    try:
        return faults.find(_value("--fault", argv) or "")
    except KeyError:
        known = " ".join(fault.code for fault in faults.FAULTS)
        common.fail(f"name a fault: --fault NAME, with NAME one of {known}", 2)


def _wait_for_gate(argv: Sequence[str]) -> None:
    """Wait for the file that ``--gate`` names: torch is loaded, and no device touched."""
    gate = _value("--gate", argv)
    while gate and not Path(gate).exists():
        time.sleep(0.02)


def _value(flag: str, argv: Sequence[str]) -> str | None:
    """What follows a flag, of which the whole command line is read later, in `common.job`."""
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        if word == flag:
            return after
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
    return None


def schedule(text: str | None) -> list[Part]:
    """Read a schedule, such as ``fault:9s,fixed:60,profile:16``.

    Raises:
        SystemExit: with one line, where it is none.
    """
    parts = []
    for word in (text or "").split(","):
        mode, _, amount = word.strip().partition(":")
        number = amount.removesuffix("s")
        if not word.strip():
            continue
        if mode not in MODES or not number.replace(".", "", 1).isdigit() or float(number) <= 0:
            common.fail(f"schedule: {word!r} is not one of {', '.join(MODES)}, with :N or :Ns", 2)
        if amount.endswith("s"):
            parts.append(Part(mode, None, float(number)))
        else:
            parts.append(Part(mode, int(float(number))))
    return parts


def train(job: common.Job, settings: SimpleNamespace, part: Part, first: int, *, last: bool) -> int:
    """Train for one part of the run.

    Args:
        job: this rank.
        settings: of the fault, or of what is left of it without its cause.
        part: how long, and what for.
        first: number of the first step.
        last: whether no other part follows.

    Returns:
        The number of the step after the last.
    """
    torch.manual_seed(settings.seed)
    with ExitStack() as stack:
        training = Training(job, settings, stack)
        limit = Limit(job, part, settings, first, len(training.loader))
        profiler = Profiler(job, part)
        profiled_from = first + PROFILED_FROM[settings.workers > 0]
        step, going = first, True
        while going:
            if step == profiled_from:
                profiler.start()
            if step == first + WARM_UP:
                limit.settle()
            with profiler.mark(f"torchtop.step#{step}"):
                training.step(step, profiler.mark)
            step += 1
            going = limit.goes_on(step)
        limit.end(step)
        if last and job.rank == 0 and job.options.gate:
            Path(job.options.gate + DONE).touch()
        profiler.stop()
        del training
    gc.collect()
    if job.device.type == "cuda":
        torch.cuda.empty_cache()
    return step


class Training:
    """Model, batches and optimizer of one part of the run, and one step of them.

    Args:
        job: this rank.
        settings: see `faults.SETTINGS`.
        stack: undoes at the end what must not outlast the part.
    """

    def __init__(self, job: common.Job, settings: SimpleNamespace, stack: ExitStack) -> None:
        self._job = job
        self._settings = settings
        self.loader = fault_parts.make_loader(job, settings)
        self._batches = fault_parts.endless(self.loader)
        self._model = common.wrap(fault_parts.make_network(job, settings), job)
        self._criterion = nn.CrossEntropyLoss()
        self._optimizer = fault_parts.make_optimizer(self._model, settings)
        self._scaler = _scaler(job.device) if settings.scaler else None
        self._slowness = fault_parts.Slowness(job, settings)
        self._after = fault_parts.after_step(job, settings, stack)
        self._hoard: Callable[[], None] | None = None
        if settings.hoard:
            hoard = fault_parts.Hoard(job.device)
            stack.callback(hoard.end)
            self._hoard = hoard

    def step(self, number: int, mark: Marker) -> None:
        """One optimizer step, over all its micro-batches."""
        count = self._settings.accumulate
        for index in range(count):
            last = index == count - 1
            with fault_parts.no_sync(self._model, not (last and self._settings.synchronise)):
                loss = self._forward()
                scaled = loss / count if self._scaler is None else self._scaler.scale(loss / count)
                with mark("torchtop.backward"):
                    scaled.backward()
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._optimizer.zero_grad()
        common.log(loss=loss.detach())
        for call in self._after:
            call(number, loss.detach())

    def _forward(self) -> Tensor:
        rows, labels = next(self._batches)
        rows = rows.to(self._job.device, non_blocking=True)[:, : self._settings.features]
        labels = labels.to(self._job.device, non_blocking=True)
        if self._hoard is not None:
            self._hoard()
        self._slowness.in_forward()
        rows = fault_parts.prepare(rows, self._settings.ops)
        with _autocast(self._job.device, self._settings.precision):
            logits = self._model(rows)
            loss: Tensor = self._criterion(logits, labels)
        self._slowness.in_backward(logits)
        return loss


def _autocast(device: torch.device, precision: str) -> torch.autocast:
    kind = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, kind, enabled=precision != "fp32")


def _scaler(device: torch.device) -> Any:
    """The class has moved, and the old name tells so with a warning."""
    made = getattr(torch.amp, "GradScaler", None)
    return torch.cuda.amp.GradScaler() if made is None else made(device.type)


class Limit:
    """When a part of the run ends, told to torchtop.

    A number of seconds becomes a number of steps that all ranks agree on, from the time that the
    first steps take.
    """

    def __init__(
        self, job: common.Job, part: Part, settings: SimpleNamespace, first: int, epoch: int
    ) -> None:
        self._job = job
        self._part = part
        self._first = first
        self._started_ns = self._settled_ns = time.monotonic_ns()
        self._told: dict[str, Any] = {"mode": part.mode, "from_step": first, "to_step": None}
        self._steps = part.steps
        # What recurs counts with its share.
        period = max(16, settings.save_every, settings.gc_every)
        self._probation = WARM_UP + period
        if part.steps is None and part.seconds is None:
            self._steps = settings.steps or settings.epochs * epoch
            common.tell(total_steps=self._steps)
        elif part.mode == "profile" and part.steps is not None:
            self._steps = WARM_UP + part.steps

    def settle(self) -> None:
        """The warm-up is over."""
        self._settled_ns = self._now()
        self._told |= {"settled_step": self._first + WARM_UP, "settled_ns": self._settled_ns}
        common.tell(part=self._told)

    def goes_on(self, step: int) -> bool:
        """Whether there is another step, `step` being its number."""
        done = step - self._first
        if self._steps is None and done == self._probation:
            self._steps = max(done + 1, self._agree(done))
        return self._steps is None or done < self._steps

    def end(self, step: int) -> None:
        """The last step was the one before `step`."""
        self._told |= {"to_step": step, "end_ns": self._now()}
        common.tell(part=self._told)
        seconds = (self._told["end_ns"] - self._started_ns) / 1e9
        self._job.say(f"{self._part.mode}: {step - self._first} steps in {seconds:.1f} s")

    def _agree(self, done: int) -> int:
        """The number of steps that fit, by the clock of rank 0."""
        now = self._now()
        each = (now - self._settled_ns) / (done - WARM_UP)
        left = (self._part.seconds or 0.0) * 1e9 - (now - self._started_ns)
        count = torch.tensor(done + int(left / each), device=self._job.device)
        if dist.is_initialized():
            dist.broadcast(count, 0)
        return int(count.item())

    def _now(self) -> int:
        """The time, when the device has done all that was queued."""
        if self._job.device.type == "cuda":
            torch.cuda.synchronize(self._job.device)
        return time.monotonic_ns()


class Profiler:
    """torch.profiler, for the parts of the run that want it."""

    def __init__(self, job: common.Job, part: Part) -> None:
        self._made: torch.profiler.profile | None = None
        self._running = False
        folder = job.options.profile_dir
        if part.mode == "profile" and folder is None:
            common.fail("schedule: profile needs --profile-dir", 2)
        self._path = Path(folder or ".") / f"trace-{job.rank}.json"
        self._wanted = part.mode == "profile"

    def start(self) -> None:
        """Begin to record, where it is wanted."""
        if self._wanted:
            self._made = torch.profiler.profile()
            self._made.start()
            self._running = True

    def mark(self, name: str) -> AbstractContextManager[Any]:
        """A context that shows in the trace under a name."""
        return torch.profiler.record_function(name) if self._running else nullcontext()

    def stop(self) -> None:
        """Write the trace."""
        if self._made is not None:
            self._made.stop()
            self._running = False
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._made.export_chrome_trace(str(self._path))


if __name__ == "__main__":
    main()
