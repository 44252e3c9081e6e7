"""What a run tells of itself beside its phases: epochs, the script's own phases, and its losses."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from .ranks import RankState
from .verdict import Verdict

_EPOCH_FIELDS = ("epoch", "epoch_batch", "epoch_batches", "epoch_eta_s")

_NAMES = {"nan": "NaN", "inf": "infinite", "-inf": "infinite"}

_OVER_NS = 10_000_000_000
"""Own phases are of the last ten seconds, as throughput is."""


def epochs(ranks: Mapping[int, RankState]) -> dict[str, Any]:
    """How far training is in its loader, as the lowest rank tells, and when the epoch will end.

    The time left follows from the batches since the first known beat of the epoch, so that it
    counts what lies between them, too.
    """
    nothing = dict.fromkeys(_EPOCH_FIELDS)
    beats = [beat for beat in ranks[min(ranks)].beats if beat.loader_at] if ranks else []
    if not beats or beats[-1].loader_at is None:
        return nothing
    last, (epoch, batch, batches) = beats[-1], beats[-1].loader_at
    same = [beat for beat in beats if beat.loader_at and beat.loader_at[0] == epoch]
    first = same[0].loader_at
    done, took_ns = batch - (first[1] if first else 0), last.mono_ns - same[0].mono_ns
    eta = None
    if batches is not None and done > 0 and took_ns > 0:
        eta = round(max(0, batches - batch) * took_ns / done / 1e9, 1)
    return {"epoch": epoch, "epoch_batch": batch, "epoch_batches": batches, "epoch_eta_s": eta}


def own_phases(ranks: Mapping[int, RankState]) -> dict[str, dict[str, float]]:
    """The script's own phases: milliseconds and share of a step, mean of the ranks that tell."""
    told: dict[str, list[tuple[float, float]]] = {}
    for state in ranks.values():
        recent = [o for o in state.own if o.mono_ns > state.own[-1].mono_ns - _OVER_NS]
        steps, whole = sum(o.steps for o in recent), sum(o.whole_us for o in recent)
        for name in {name for own in recent for name in own.sums_us} if steps and whole else ():
            spent = sum(own.sums_us.get(name, 0.0) for own in recent)
            told.setdefault(name, []).append((spent / steps, spent / whole))
    return {
        name: {
            "ms": round(fmean(us for us, _ in values) / 1000, 3),
            "share": round(fmean(share for _, share in values), 5),
        }
        for name, values in sorted(told.items())
    }


def not_finite(ranks: Mapping[int, RankState]) -> tuple[Verdict, ...]:
    """A finding of the lowest rank whose loss is no number any more."""
    for rank in sorted(ranks):
        spoilt = ranks[rank].not_finite
        if not spoilt:
            continue
        name, (step, value) = min(spoilt.items(), key=lambda item: item[1][0] or 0)
        others = sum(bool(state.not_finite) for state in ranks.values()) - 1
        shown = _NAMES.get(value, "not finite")
        since = "" if step is None else f" since step {step}"
        return (
            Verdict(
                "NOT FINITE",
                "critical",
                None,
                f"The loss is {shown}{since}: training goes on, and comes to nothing",
                rank=rank,
                evidence=tuple(
                    text
                    for text in (
                        f"{name} of rank {rank} is {value}; it is looked at twice a second, so the "
                        "first such step may be a little earlier",
                        f"and so of {others} other {'rank' if others == 1 else 'ranks'}"
                        if others
                        else "",
                    )
                    if text
                ),
                advice=(
                    "go back to the last good checkpoint, with a lower learning rate or gradients "
                    "clipped",
                    "torch.autograd.set_detect_anomaly(True) for some steps names the operation",
                ),
            ),
        )
    return ()
