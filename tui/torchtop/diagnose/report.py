"""The numbers of an ``analysis`` record, other than the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..session.records import PHASES, UNKNOWN
from .ranks import RankState, Totals
from .window import RankMeans, Window

_THROUGHPUT_NS = 10_000_000_000
"""Throughput is of the last ten seconds, as the window is."""


def millis(microseconds: float | None) -> float | None:
    """Microseconds as milliseconds, to the microsecond."""
    return None if microseconds is None else round(microseconds / 1000, 3)


def percentile(ordered: Sequence[float], part: float) -> float:
    """Nearest-rank percentile of sorted values; `part` is 0..1."""
    return ordered[max(0, min(len(ordered) - 1, -int(-part * len(ordered) // 1) - 1))]


def step_ms(window: Window | None) -> dict[str, float | None]:
    """Mean and percentiles of the window's steps, milliseconds."""
    if window is None:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    ordered = sorted(window.durations_us)
    return {
        "mean": millis(window.step_us),
        "p50": millis(percentile(ordered, 0.50)),
        "p95": millis(percentile(ordered, 0.95)),
        "p99": millis(percentile(ordered, 0.99)),
        "max": millis(ordered[-1]),
    }


def phases(window: Window | None) -> dict[str, dict[str, float | None]]:
    """The frontier: milliseconds and share of each phase."""
    if window is None:
        return {}
    spent = _with_unknown(window.frontier_us, window.untold_us)
    return {
        phase: {"ms": None, "share": None}
        if phase in window.unknown
        else {
            "ms": millis(us),
            "share": round(us / window.step_us, 5) if window.step_us else 0.0,
        }
        for phase, us in spent.items()
    }


def _with_unknown(phases_us: Mapping[str, float], untold_us: float) -> dict[str, float]:
    """The phases in their order, and after them what is perhaps no forward, if there is any."""
    spent = {phase: phases_us[phase] for phase in PHASES}
    if untold_us:
        spent["forward"] -= untold_us
        spent[UNKNOWN] = untold_us
    return spent


def window_fields(window: Window | None) -> dict[str, Any] | None:
    """The window: its steps [from_step, to_step) and how long it is."""
    if window is None:
        return None
    return {
        "from_step": window.from_step,
        "to_step": window.to_step,
        "steps": window.to_step - window.from_step,
        "recorded": window.recorded,
        "seconds": round(window.seconds, 3),
    }


def rank_fields(state: RankState, means: RankMeans | None, age_s: float | None) -> dict[str, Any]:
    """One entry of ``ranks``."""
    beat = state.beats[-1] if state.beats else None
    fields: dict[str, Any] = {"rank": state.rank, "step": max(0, state.last_step)}
    if means is None:
        fields |= {"phases": {}, "step_ms": None, "host_step_ms": None, "wait_ms": None}
        fields |= {"lag_ms": None, "data_host_ms": None}
    else:
        fields |= {
            "phases": {
                phase: millis(us)
                for phase, us in _with_unknown(means.phases_us, means.untold_us).items()
            },
            "step_ms": millis(means.step_us),
            "host_step_ms": millis(means.host_us),
            "wait_ms": millis(means.wait_us),
            "lag_ms": millis(means.lag_us),
            "data_host_ms": millis(means.data_host_us),
        }
    return fields | {
        "ready": beat.ready if beat else None,
        "marker": beat.marker if beat else None,
        "marker_age_s": None if age_s is None else round(age_s, 3),
    }


def throughput(
    ranks: Mapping[int, RankState], complete: bool, warmup_steps: int
) -> dict[str, float | None]:
    """Samples, tokens and steps a second, summed over the ranks.

    Args:
        ranks: by rank.
        complete: whether all ranks are there; a sum over some would be too low.
        warmup_steps: totals that begin before are left out, where there are others.
    """
    rates = [_rates(_recent(state, warmup_steps)) for state in ranks.values()]
    steps = [rate["steps_per_s"] for rate in rates]
    known = [rate for rate in steps if rate is not None]
    return {
        "samples_per_s": _sum([rate["samples_per_s"] for rate in rates]) if complete else None,
        "tokens_per_s": _sum([rate["tokens_per_s"] for rate in rates]) if complete else None,
        "steps_per_s": round(min(known), 4) if known else None,
    }


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 3) if known and len(known) == len(values) else None


def _recent(state: RankState, warmup_steps: int) -> list[Totals]:
    if not state.totals:
        return []
    since = state.totals[-1].mono_ns - _THROUGHPUT_NS
    recent = [totals for totals in state.totals if totals.mono_ns > since]
    return [totals for totals in recent if totals.from_step >= warmup_steps] or recent


def _rates(recent: Sequence[Totals]) -> dict[str, float | None]:
    seconds = sum(totals.host_us for totals in recent) / 1e6
    if not seconds:
        return dict.fromkeys(("samples_per_s", "tokens_per_s", "steps_per_s"))
    samples = [totals.samples for totals in recent if totals.steps]
    tokens = [totals.tokens for totals in recent if totals.steps]
    known = _sum(samples), _sum(tokens)
    return {
        "samples_per_s": None if known[0] is None else known[0] / seconds,
        "tokens_per_s": None if known[1] is None else known[1] / seconds,
        "steps_per_s": sum(totals.steps for totals in recent) / seconds,
    }


def probe(
    ranks: Mapping[int, RankState], reasons: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """The probes' cost (the worst rank's), steps that they lost, and why one is off.

    Args:
        ranks: by rank.
        reasons: why the probes of others are off, by rank.
    """
    costs = [state.probe.get("cost_share") for state in ranks.values()]
    known = [cost for cost in costs if isinstance(cost, (int, float))]
    told = {rank: state.probe.get("disabled") for rank, state in ranks.items()}
    out = dict(reasons or {}) | {rank: why for rank, why in told.items() if why}
    off = [f"rank {rank}: {why}" for rank, why in sorted(out.items())]
    return {
        "cost_share": max(known) if known else None,
        "dropped": sum(state.dropped for state in ranks.values()),
        "disabled": off[0] if off else None,
    }


def scalars(ranks: Mapping[int, RankState]) -> dict[str, float | None]:
    """The last value of each scalar, from the lowest rank that tells it."""
    found: dict[str, float | None] = {}
    for rank in sorted(ranks, reverse=True):
        found |= ranks[rank].scalars
    return found


def progress(step: int | None, total: int | None, mean_us: float | None) -> dict[str, Any]:
    """How far the run is; the time left where its length is known."""
    left = None
    if step is not None and total is not None and mean_us is not None:
        left = round(max(0, total - step - 1) * mean_us / 1e6, 1)
    return {"step": step, "total_steps": total, "eta_s": left}
