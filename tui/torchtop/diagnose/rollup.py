"""What happened since the last ``minute`` record. Everything in it sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..session.records import PHASES, UNKNOWN, latency_bucket
from .devices import NodeState, gpu_value
from .frontier import FRONTIER_PHASES, FrontierStep, Row, untold_us
from .ranks import Totals, mean_fed
from .rows import integer, number
from .verdict import Verdict
from .window import row_lag_us

_MOST_BETWEEN_S = 10.0
"""An analysis that comes later than this after the last says nothing about the time between."""

Stood = dict[tuple[str, "int | None", "str | None"], dict[str, Any]]
"""Kind, rank and phase of verdicts, and for how long they stood."""

_GPU_MEANS = ("util_percent", "sm_active", "power_w")


class Rollup:
    """Sums over the time since the last `close`."""

    def __init__(self) -> None:
        self._previous: FrontierStep | None = None
        self._from_ns: int | None = None
        self._trains = False
        self._reset()

    def _reset(self) -> None:
        self._from_step: int | None = None
        self._to_step: int | None = None
        self._steps = self._warmup = self._recorded = self._step_us = self._step_us_max = 0
        self._samples: float | None = None
        self._tokens: float | None = None
        self._phases = [0] * len(FRONTIER_PHASES)
        self._latency: Counter[int] = Counter()
        self._ranks: dict[int, dict[str, Any]] = {}
        self._gpus: dict[tuple[str, int], dict[str, Any]] = {}
        self._verdicts: Stood = {}
        self._findings: Stood = {}
        self._scalars: dict[str, dict[str, float]] = {}
        self._untold = 0.0
        self._own: dict[str, float] = {}
        self._own_steps = 0
        self._totals: dict[int, list[Totals]] = {}

    def restart(self) -> None:
        """A new attempt begins: its first step does not follow the last one's."""
        self._previous = None

    def trains_anew(self) -> None:
        """Another launch begins: GPUs idle until it trains."""
        self._trains = False

    def add_step(self, step: FrontierStep, warmup: bool) -> None:
        """Count a step that all ranks recorded, and the unrecorded ones before it."""
        spans, span_us = 1, step.step_us
        if self._previous is not None and step.step - self._previous.step > 1:
            # Unrecorded steps lie between: the host's clock spans them. Where none does, the
            # device's is better, for at the start of a run the host runs ahead of it.
            spans = step.step - self._previous.step
            span_us = max(0, step.rows[0].end_ns - self._previous.rows[0].end_ns) // 1000
        self._previous = step
        if warmup:
            self._warmup += spans
            return
        if self._from_step is None:
            self._from_step = step.step + 1 - spans
        self._to_step = step.step + 1
        self._steps += spans
        self._step_us += span_us
        self._samples = _plus(self._samples, _total(step.rows, "samples"), spans)
        self._tokens = _plus(self._tokens, _total(step.rows, "tokens"), spans)
        self._recorded += 1
        self._step_us_max = max(self._step_us_max, step.step_us)
        self._phases = [a + b for a, b in zip(self._phases, step.frontier_us, strict=True)]
        self._untold += untold_us(step)
        self._latency[latency_bucket(step.step_us)] += 1
        for rank, row in enumerate(step.rows):
            self._add_row(rank, row, step.pure_comm_us)

    def add_totals(self, rank: int, totals: Totals) -> None:
        """Take in what a rank has counted of all its steps."""
        self._totals.setdefault(rank, []).append(totals)

    def _fed(self, name: str) -> int | None:
        """The samples or tokens of all steps, by the ranks' own counts; None where one has none.

        What the ranks count ends a moment before or after the last measured step, so it is the
        mean of a step that is taken from it.
        """
        means = [mean_fed(self._totals.get(rank, ()), name) for rank in self._ranks]
        known = [mean for mean in means if mean is not None]
        return round(self._steps * sum(known)) if known and len(known) == len(means) else None

    def _add_row(self, rank: int, row: Row, pure_comm_us: int) -> None:
        sums = self._ranks.setdefault(
            rank,
            {
                "rank": rank,
                "recorded": 0,
                "phases_us": dict.fromkeys(PHASES, 0),
                "host_us": 0,
                "wait_us": 0,
                "lag_us": 0,
                "lag_steps": 0,
            },
        )
        sums["recorded"] += 1
        for phase, value in zip(FRONTIER_PHASES, (*row.local_us, row.exposed_us), strict=True):
            sums["phases_us"][phase] += value
        if row.untold_us:
            phases = sums["phases_us"]
            phases["forward"] -= row.untold_us
            phases[UNKNOWN] = phases.get(UNKNOWN, 0) + row.untold_us
        sums["host_us"] += row.host_us or 0
        sums["wait_us"] += row.exposed_us - pure_comm_us
        lag = row_lag_us(row)
        if lag is not None:
            sums["lag_us"] += lag
            sums["lag_steps"] += 1

    def add_tick(self, node: NodeState, tick: dict[str, Any], trains: bool) -> None:
        """Count one tick of a node's sampler.

        Args:
            node: the node.
            tick: its record.
            trains: whether the warm-up is over. GPUs idle while a run starts: what was counted
                before is then forgotten, so that their means are those of the training.
        """
        if trains and not self._trains:
            self._trains = True
            for sums in self._gpus.values():
                sums.update(samples=0, sm_active_samples=0, **dict.fromkeys(_GPU_MEANS))
        for place, gpu in enumerate(node.gpus):
            index = integer(gpu.get("index"))
            sums = self._gpus.setdefault(
                (node.host, place),
                {
                    "index": place if index is None else index,
                    "host": node.host,
                    "uuid": gpu.get("uuid"),
                    "samples": 0,
                    **dict.fromkeys(_GPU_MEANS),
                    "sm_active_samples": 0,
                    "memory_peak_bytes": None,
                    "energy_j": None,
                },
            )
            _add_gpu(sums, tick, place)

    def add_verdict(self, verdict: Verdict, steps: tuple[int | None, int | None], s: float) -> None:
        """Count the time that a verdict stood.

        Args:
            verdict: the verdict.
            steps: from which to which step it holds.
            s: seconds since the last analysis.
        """
        _add_verdict(self._verdicts, verdict, steps, s)

    def add_finding(self, finding: Verdict, steps: tuple[int | None, int | None], s: float) -> None:
        """Count the time that a finding stood beside the verdict; as `add_verdict`."""
        _add_verdict(self._findings, finding, steps, s)

    def add_scalars(self, values: dict[str, float | None]) -> None:
        """Count values that the script told."""
        for name, value in values.items():
            if value is None:
                continue
            known = self._scalars.setdefault(name, {"first": value, "last": value, "min": value})
            known["last"] = value
            known["min"] = min(known["min"], value)

    def add_own(self, steps: int, sums_us: dict[str, float]) -> None:
        """Count the script's own phases, of so many measured steps of the lowest rank."""
        self._own_steps += steps
        for name, us in sums_us.items():
            self._own[name] = self._own.get(name, 0.0) + us

    def close(self, now_ns: int, first_ns: int | None) -> dict[str, Any] | None:
        """The fields of a ``minute`` record, and start anew.

        Args:
            now_ns: the end of the minute.
            first_ns: the time of the first record of all, where the first minute begins.

        Returns:
            None when nothing happened.
        """
        started = self._from_ns if self._from_ns is not None else first_ns
        self._from_ns = now_ns
        if not (self._steps or self._warmup or self._gpus or self._verdicts or self._scalars):
            return None
        phases_us: dict[str, float] = dict(zip(FRONTIER_PHASES, self._phases, strict=True))
        if self._untold:
            phases_us["forward"] -= self._untold
            phases_us[UNKNOWN] = self._untold
        fields: dict[str, Any] = {
            "from_ns": now_ns if started is None else started,
            "to_ns": now_ns,
            "from_step": self._from_step,
            "to_step": self._to_step,
            "steps": self._steps,
            "warmup_steps": self._warmup,
            "step_us": self._step_us,
            "recorded": self._recorded,
            "phases_us": phases_us,
            "samples": self._samples if (fed := self._fed("samples")) is None else fed,
            "tokens": self._tokens if (fed := self._fed("tokens")) is None else fed,
            "latency": {str(bucket): count for bucket, count in sorted(self._latency.items())},
            "step_us_max": self._step_us_max,
            "ranks": [self._ranks[rank] for rank in sorted(self._ranks)],
            "gpus": [self._gpus[key] for key in sorted(self._gpus)],
            "verdicts": [_verdict_fields(entry) for entry in self._verdicts.values()],
            "findings": [_verdict_fields(entry) for entry in self._findings.values()],
            "scalars": self._scalars,
        }
        if self._own:
            fields |= {"own_us": self._own, "own_steps": self._own_steps}
        self._reset()
        return fields


def _total(rows: Sequence[Row], name: str) -> int | None:
    values = [getattr(row, name) for row in rows]
    return None if None in values else sum(values)


def _plus(so_far: float | None, value: int | None, count: int) -> float | None:
    return so_far if value is None else (so_far or 0) + value * count


def _add_gpu(sums: dict[str, Any], tick: dict[str, Any], place: int) -> None:
    """Add a tick. `samples` counts behind both utilization and power, so they come together."""
    if number(gpu_value(tick, "util_percent", place)) is not None:
        sums["samples"] += 1
        _add_metric(sums, tick, "util_percent", place)
        _add_metric(sums, tick, "power_w", place)
    sums["sm_active_samples"] += _add_metric(sums, tick, "sm_active", place)
    used = integer(gpu_value(tick, "memory_used_bytes", place))
    if used is not None:
        sums["memory_peak_bytes"] = max(sums["memory_peak_bytes"] or 0, used)
    energy = number(gpu_value(tick, "energy_j", place))
    sums["energy_j"] = sums["energy_j"] if energy is None else energy


def _add_metric(sums: dict[str, Any], tick: dict[str, Any], metric: str, place: int) -> bool:
    value = number(gpu_value(tick, metric, place))
    if value is not None:
        sums[metric] = (sums[metric] or 0.0) + value
    return value is not None


def _add_verdict(
    stood: Stood, verdict: Verdict, steps: tuple[int | None, int | None], s: float
) -> None:
    seconds = min(max(0.0, s), _MOST_BETWEEN_S)
    entry = stood.setdefault(
        (verdict.kind, verdict.rank, verdict.phase),
        {"seconds": 0.0, "from_step": steps[0], "weight": 0.0},
    )
    entry["seconds"] += seconds
    entry["weight"] += seconds * (verdict.share or 0.0)
    entry["to_step"] = steps[1]
    entry["fields"] = verdict.fields()


def _verdict_fields(entry: dict[str, Any]) -> dict[str, Any]:
    """The verdict as it last was, with the mean of its share."""
    fields: dict[str, Any] = dict(entry["fields"])
    if fields["share"] is not None and entry["seconds"]:
        fields["share"] = round(entry["weight"] / entry["seconds"], 4)
    fields |= {"from_step": entry["from_step"], "to_step": entry["to_step"]}
    return fields | {"seconds": round(entry["seconds"], 3)}
