"""What of a summary is compared: each figure with its unit, and which way is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchtop.session.noise import RESOLUTION
from torchtop.session.records import PHASES
from torchtop.session.values import child, children, number

Summary = Mapping[str, Any]

_PERCENTILE_RESOLUTION = 0.003
"""Percentiles come from a histogram whose buckets grow by 1 %: rounded to one, a value is off by
1 % / sqrt(12) as a standard deviation."""


@dataclass(frozen=True)
class Measure:
    """One figure of a session.

    Attributes:
        key: its name on the command line and in JSON.
        title: its name in tables, with the unit.
        better: 1 where more is better, -1 where less is, 0 where neither is.
        read: takes it from a summary; None where it was not measured.
        resolution: the noise below which two runs cannot be told apart, as a share.
    """

    key: str
    title: str
    better: int
    read: Callable[[Summary], float | None]
    resolution: float = RESOLUTION


def measures(summaries: Sequence[Summary]) -> list[Measure]:
    """The figures to compare, the most telling first: `THROUGHPUT` in a unit that all have."""
    unit = next((u for u in _UNITS if all(_rate(u, s) is not None for s in summaries)), _UNITS[0])
    speed = Measure(THROUGHPUT, unit.replace("_per_s", "/s"), 1, partial(_rate, unit))
    return [speed, *_OTHERS]


def keys() -> list[str]:
    """The names of all measures."""
    return [measure.key for measure in measures(())]


def _rate(unit: str, summary: Summary) -> float | None:
    return number(child(summary, "throughput").get(unit))


def _step(which: str, summary: Summary) -> float | None:
    return number(child(summary, "step_ms").get(which))


def _phase(phase: str, summary: Summary) -> float | None:
    return number(child(child(summary, "phases"), phase).get("ms"))


def _memory(summary: Summary) -> float | None:
    """The highest peak of a rank's allocator, else of a GPU, in GiB."""
    for group in ("ranks", "gpus"):
        peaks = [number(entry.get("memory_peak_bytes")) for entry in children(summary, group)]
        known = [peak for peak in peaks if peak is not None]
        if known:
            return max(known) / 2**30
    return None


def used_gpus(summary: Summary) -> list[Mapping[str, Any]]:
    """The GPUs that ranks of the session ran on; all where the ranks do not say."""
    used = {rank.get("gpu_uuid") for rank in children(summary, "ranks")} - {None}
    gpus = children(summary, "gpus")
    return [gpu for gpu in gpus if gpu.get("uuid") in used] or gpus


def _power(summary: Summary) -> float | None:
    watts = [number(gpu.get("power_mean_w")) for gpu in used_gpus(summary)]
    known = [value for value in watts if value is not None]
    return sum(known) if known and len(known) == len(watts) else None


def _energy(summary: Summary) -> float | None:
    """Joules that the GPUs took for a thousand samples, while they trained."""
    watts, rate = _power(summary), _rate("samples_per_s", summary)
    return watts / rate * 1e3 if watts is not None and rate else None


def _active(summary: Summary) -> float | None:
    shares = [number(gpu.get("sm_active_mean")) for gpu in used_gpus(summary)]
    known = [share * 100 for share in shares if share is not None]
    return sum(known) / len(known) if known else None


THROUGHPUT = "throughput"
_UNITS = ("samples_per_s", "tokens_per_s", "steps_per_s")
_OTHERS = (
    Measure("step_ms", "step, mean, ms", -1, partial(_step, "mean")),
    *(
        Measure(f"{q}_ms", f"step, {q}, ms", -1, partial(_step, q), _PERCENTILE_RESOLUTION)
        for q in ("p50", "p95", "p99")
    ),
    *(Measure(f"{p}_ms", f"{p}, ms", -1, partial(_phase, p)) for p in PHASES),
    Measure("memory", "memory peak, GiB", -1, _memory),
    Measure("sm_active", "SM active, %", 0, _active),
    Measure("power", "power, all GPUs, W", 0, _power),
    Measure("energy", "energy, J/1000 samples", -1, _energy),
)
