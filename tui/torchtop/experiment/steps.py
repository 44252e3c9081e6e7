"""The measured steps of a session: those after the warm-up, as all ranks recorded them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from statistics import fmean, median
from typing import Any

from torchtop.diagnose.align import Aligner
from torchtop.diagnose.frontier import FrontierStep, Row
from torchtop.diagnose.ranks import Totals, mean_fed, read_totals
from torchtop.diagnose.report import percentile
from torchtop.diagnose.rows import integer, number, parse_steps
from torchtop.diagnose.sampled import with_skipped
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.window import Window, summarise
from torchtop.experiment.costs import Costs, costs_of
from torchtop.session.launches import newest

Records = Iterable[tuple[str, dict[str, Any]]]


class NotMeasuredError(Exception):
    """A session gives no measurement; the message is one line that says why."""


@dataclass
class RankFile:
    """What one rank's probe wrote."""

    header: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    peak_bytes: int | None = None
    loss: float | None = None
    totals: list[Totals] = field(default_factory=list)

    def take(self, record: dict[str, Any]) -> None:
        """Take in one of its records; what is malformed is passed over."""
        kind = record.get("kind")
        if kind in ("steps", "totals"):
            with contextlib.suppress(ValueError):
                if kind == "steps":
                    self.rows += parse_steps(record)
                else:
                    self.totals.append(read_totals(record))
        elif kind == "facts":
            self.facts.setdefault(str(record.get("subject")), {}).update(record)
        elif kind == "memory":
            peak = integer(record.get("peak_bytes"))
            self.peak_bytes = max(self.peak_bytes or 0, peak) if peak is not None else None
        elif kind == "scalars" and isinstance(record.get("values"), dict):
            loss = number(record["values"].get("loss"))
            self.loss = self.loss if loss is None else loss

    @property
    def broadcast(self) -> bool:
        """Whether DDP broadcasts buffers in forward."""
        return self.facts.get("ddp", {}).get("broadcast_buffers") is True


@dataclass
class Recorded:
    """The steps of a session after its warm-up.

    Attributes:
        ranks: those of the last launch by rank, each in its last attempt.
        steps: what all ranks recorded.
    """

    ranks: dict[int, RankFile]
    steps: list[FrontierStep]

    @cached_property
    def window(self) -> Window:
        """The steps added up."""
        window = summarise(self.steps, self.cuda, DEFAULT)
        return with_skipped(window, self.steps, DEFAULT)

    @property
    def first(self) -> RankFile:
        """The lowest rank."""
        return self.ranks[min(self.ranks)]

    @property
    def cuda(self) -> bool:
        """Whether it computes on GPUs."""
        return (self.first.header.get("device") or {}).get("type") == "cuda"

    @property
    def count(self) -> int:
        """How many steps were measured, the unrecorded ones among them."""
        return self.steps[-1].step - self.steps[0].step

    @property
    def span_ns(self) -> tuple[int, int]:
        """When the first step ended and when the last did, on the device, in the host's time."""
        return _device_ns(self.steps[0].rows[0]), _device_ns(self.steps[-1].rows[0])

    @cached_property
    def step_ms(self) -> float:
        """Mean time of a step, all of them counted."""
        start, end = self.span_ns
        return (end - start) / 1e6 / self.count

    def percentile_ms(self, part: float) -> float:
        """A percentile (0..1) of the recorded steps."""
        return percentile(sorted(step.step_us for step in self.steps), part) / 1e3

    def usual(self, name: str) -> float | None:
        """Samples or tokens of the usual step over all ranks; None where not known."""
        sums = self._recorded(name)
        return None if sums is None else median(sums)

    def per_s(self, name: str) -> float | None:
        """Samples or tokens a second over all ranks; None where not known.

        All steps count, those too that were not recorded: by the ranks' own totals of them.
        """
        mean = self._mean(name)
        return None if mean is None else mean / self.step_ms * 1e3

    def _mean(self, name: str) -> float | None:
        """Samples or tokens of a mean step over all ranks."""
        sums = self._recorded(name)
        if sums is not None and len(sums) == self.count + 1:  # the span begins where the first ends
            return fmean(sums[1:])
        means = [mean_fed(self._within(file), name) for file in self.ranks.values()]
        known = [mean for mean in means if mean is not None]
        if len(known) == len(means):
            return sum(known)
        return None if sums is None else fmean(sums)

    def _within(self, file: RankFile) -> list[Totals]:
        """A rank's totals of the measured steps: those of these alone, if there are any."""
        first, last = self.steps[0].step, self.steps[-1].step
        over = [t for t in file.totals if t.to_step > first + 1 and t.from_step <= last]
        return [t for t in over if t.from_step > first and t.to_step <= last + 1] or over

    def _recorded(self, name: str) -> list[float] | None:
        """Samples or tokens of each recorded step; None where they are not known of one."""
        rows = [[getattr(row, name) for row in step.rows] for step in self.steps]
        return None if any(None in values for values in rows) else [sum(v) for v in rows]

    def costs(self) -> Costs:
        """What a mean step consists of."""
        return costs_of(self.window, self.steps, self.step_ms)


def _device_ns(row: Row) -> int:
    """When a device was done with a step: it runs behind the host that told it to."""
    lag_us = row.lag_backward_us if row.lag_backward_us is not None else row.lag_forward_us
    return row.end_ns + 1000 * (lag_us or 0)


def read_steps(records: Records, warm_up: int) -> Recorded:
    """Read the records of a session's ranks.

    Args:
        records: each with its file's path in the session directory; other files are passed over.
        warm_up: the number of the last step that is left out.

    Raises:
        NotMeasuredError: there are no two steps after the warm-up that all ranks recorded.
    """
    files: dict[str, RankFile] = {}
    for source, record in records:
        path = PurePosixPath(source)
        if path.parts[0] != "ranks" or path.name.endswith(".process.jsonl"):
            continue
        if record.get("kind") == "header":
            files[source] = RankFile(record)
        elif source in files:
            files[source].take(record)
    ranks = newest(files.values(), lambda file: file.header)
    if not ranks:
        raise NotMeasuredError("no rank has trained a step that the probe saw")
    steps = [step for step in _aligned(ranks) if step.step >= warm_up]
    if len(steps) < 2 or steps[-1].step - steps[0].step < 2:
        last = max((row.step for file in ranks.values() for row in file.rows), default=0)
        raise NotMeasuredError(
            f"it ended at step {last + 1}, of which {warm_up} are warm-up: raise --steps"
        )
    return Recorded(ranks, steps)


def _aligned(ranks: dict[int, RankFile]) -> list[FrontierStep]:
    first = ranks[min(ranks)]
    world = integer(first.header.get("world_size")) or 1
    if sorted(ranks) != list(range(world)):
        raise NotMeasuredError(f"only {len(ranks)} of {world} ranks have trained")
    aligner = Aligner(world)
    aligner.broadcast = first.broadcast
    steps: list[FrontierStep] = []
    for rank, file in ranks.items():
        steps += aligner.add(rank, file.rows)
    return steps
