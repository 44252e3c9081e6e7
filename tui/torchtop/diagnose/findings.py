"""What the devices say, whatever the steps do: throttled, shared with others, out of memory.

Such a finding stands beside the verdict. It takes the verdict's place where it explains it: a rank
that is slow because its GPU is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from . import words
from .copies import beyond_computing_us
from .facts import Facts, GpuFacts, RankFacts
from .frontier import LOCAL_PHASES
from .stretch import Stretch
from .thresholds import Thresholds
from .verdict import Verdict
from .window import Window

Keys = Collection[tuple[str, int | None]]
"""Kinds and ranks."""

_POWER = "sw_power_cap"
_FOLLOWS = ("sync_boost", _POWER)
"""Reasons that a GPU has by design, unless others are faster."""
_COMPUTE = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Scene:
    """What findings are looked for in."""

    window: Window
    facts: Facts
    standing: Keys
    """The findings that stand, and the verdict where it is one."""
    limits: Thresholds


def find(scene: Scene) -> tuple[Verdict, ...]:
    """All findings, the most severe first."""
    found = [
        finding
        for rank in scene.facts.ranks
        for finding in (_throttled(rank, scene), _contended(rank, scene), _pressed(rank, scene))
        if finding is not None
    ]
    levels = ("critical", "warn", "note")
    return tuple(sorted(found, key=lambda finding: levels.index(finding.severity)))


def settle(
    verdict: Verdict, found: Sequence[Verdict], scene: Scene
) -> tuple[Verdict, tuple[Verdict, ...]]:
    """The verdict, or the finding that explains it, and the findings that stand beside it."""
    for finding in found:
        if _explains(finding, verdict, scene):
            rest = tuple(other for other in found if other is not finding)
            return _in_place_of(verdict, finding, scene), rest
    return verdict, tuple(found)


def _in_place_of(verdict: Verdict, finding: Verdict, scene: Scene) -> Verdict:
    """The finding, with what the verdict that it explains knows of the loss."""
    nameless = verdict.kind in ("COMPUTE-BOUND", "UNDECIDED")
    share, bound = verdict.share, verdict.gain_bound
    if nameless:
        share = min(1.0, max(0.0, _cost(finding, scene))) or None
        bound = None if share is None else 1 / (1 - min(share, 0.99))
    cost = "" if share is None else f", costing {words.percent(share)}"
    cost += "" if bound is None else f": up to {words.times(bound)} faster"
    advice = finding.advice if verdict.kind == "STRAGGLER" else (*finding.advice, *verdict.advice)
    return replace(
        finding,
        severity=finding.severity if nameless or share is None else verdict.severity,
        share=share,
        phase=verdict.phase,
        gain_bound=bound,
        headline=words.headline(finding.headline + cost, finding.brief + cost),
        evidence=(*finding.evidence, *verdict.evidence)[:4],
        advice=advice[:3],
        of=verdict.kind,
    )


def _explains(finding: Verdict, verdict: Verdict, scene: Scene) -> bool:
    """Whether a finding is what is behind a verdict."""
    if verdict.kind == "COMPUTE-BOUND":
        serious = finding.severity in ("warn", "critical")
        return serious and _cost(finding, scene) >= scene.limits.note
    if finding.kind == "MEMORY PRESSURE":
        return verdict.kind in ("SYNC", "LAUNCH", "UNDECIDED")
    if verdict.kind != "STRAGGLER" or verdict.rank != finding.rank:
        return False
    if verdict.phase not in _COMPUTE:
        return False
    return finding.kind == "CONTENTION" or _is_slow_enough(finding, verdict, scene)


def _cost(finding: Verdict, scene: Scene) -> float:
    """The share of the step that a finding costs a run that nothing else holds back.

    A lower clock makes all of the computing longer, and so do others on the GPU. An allocator that
    waits for its device does so where memory is taken, which is forward: what that takes beyond
    computing.
    """
    window, rank = scene.window, scene.facts.of(finding.rank)
    means = next((r for r in window.ranks if r.rank == finding.rank), None)
    if means is None or not window.step_us:
        return 0.0
    if finding.kind == "CONTENTION":
        turns = _turns(means.rank, scene)
        return 0.0 if turns is None else 1 - 1 / turns.factor
    if finding.kind == "THROTTLED":
        reference = _reference_mhz(rank, scene.facts)
        lost = 1 - (rank.gpu.sm_clock_mhz or 0.0) / reference if reference else 0.0
        return lost * sum(window.share(phase) for phase in _COMPUTE)
    steps = rank.retries_s * 1e6 / window.step_us
    if finding.cause == "retries" and rank.retries < scene.limits.retries_steps * steps:
        return 0.0
    return beyond_computing_us(means, scene.limits) / window.step_us


def _is_slow_enough(finding: Verdict, verdict: Verdict, scene: Scene) -> bool:
    """Whether a GPU's clock accounts for what its rank computes longer than the others."""
    own = scene.facts.of(finding.rank).gpu
    reference = _reference_mhz(scene.facts.of(finding.rank), scene.facts)
    if not own.sm_clock_mhz or not reference or verdict.share is None:
        return False
    window = scene.window
    rank = next(r for r in window.ranks if r.rank == finding.rank)
    computes = sum(rank.phases_us[phase] for phase in LOCAL_PHASES if phase in _COMPUTE)
    explained = computes * (1 - own.sm_clock_mhz / reference)
    return explained >= scene.limits.explains * verdict.share * window.step_us


# -------------------------------------------------------------------------------------- throttled
def _throttled(rank: RankFacts, scene: Scene) -> Verdict | None:
    gpu, limits = rank.gpu, scene.limits
    stands = ("THROTTLED", rank.rank) in scene.standing
    needed = limits.throttle_held if stands else limits.throttle_ticks
    reasons = [name for name, part in gpu.throttle.items() if part >= needed]
    clock, reference = gpu.sm_clock_mhz, _reference_mhz(rank, scene.facts)
    if not reasons or not clock or not reference or not _is_busy(gpu, limits):
        return None
    below = limits.clock_below if not stands else (1 + limits.clock_below) / 2
    faults = [name for name in reasons if name not in _FOLLOWS]
    alone = bool(_peers_mhz(rank, scene.facts)) and clock < below * max(
        _peers_mhz(rank, scene.facts)
    )
    capped = clock < limits.power_cap_below * (gpu.sm_clock_max_mhz or reference)
    if not alone and not capped and not (faults and clock < below * reference):
        return None
    lost = 1 - clock / reference
    serious = alone or bool(faults)
    name = f"GPU {gpu.index}" if gpu.index is not None else f"The GPU of rank {rank.rank}"
    told = ", ".join(faults or reasons)
    return Verdict(
        "THROTTLED",
        "critical" if serious and lost >= limits.critical else "warn" if serious else "note",
        None,
        words.headline(
            f"{name} is slowed down by {told}: {clock:.0f} of {reference:.0f} MHz",
            f"{name} is slowed down: {clock:.0f} of {reference:.0f} MHz",
        ),
        rank=rank.rank,
        brief=f"{name} is throttled",
        evidence=tuple(_throttle_evidence(rank, scene.facts, told)),
        advice=(_against_throttling(reasons),),
        cause=(faults or reasons)[0],
    )


def _is_busy(gpu: GpuFacts, limits: Thresholds) -> bool:
    return gpu.util_percent is not None and gpu.util_percent >= limits.util_idle_percent


def _peers_mhz(rank: RankFacts, facts: Facts) -> list[float]:
    peers = [r.gpu for r in facts.ranks if r.rank != rank.rank and r.gpu.name == rank.gpu.name]
    return [gpu.sm_clock_mhz for gpu in peers if gpu.sm_clock_mhz]


def _reference_mhz(rank: RankFacts, facts: Facts) -> float | None:
    """What a clock is held against: the fastest peer where that is faster, else its highest."""
    peers = _peers_mhz(rank, facts)
    own = rank.gpu.sm_clock_mhz
    if own and peers and own < 0.98 * max(peers):
        return max(peers)
    return rank.gpu.sm_clock_max_mhz


def _throttle_evidence(rank: RankFacts, facts: Facts, told: str) -> list[str]:
    gpu = rank.gpu
    part = max(gpu.throttle.values())
    hot = "" if gpu.temperature_c is None else f", at {gpu.temperature_c:.0f} °C"
    power = "" if gpu.power_w is None else f" and {gpu.power_w:.0f} W"
    limit = "" if not power or gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f}"
    found = [
        f"the GPU of rank {rank.rank} runs at {gpu.sm_clock_mhz:.0f} MHz{hot}{power}{limit}; "
        f"held down in {words.percent(part)} of the seconds ({told})"
    ]
    peers = _peers_mhz(rank, facts)
    if peers:
        found.append(f"the fastest other GPU runs at {max(peers):.0f} MHz")
    return found


def _against_throttling(reasons: Sequence[str]) -> str:
    if any("thermal" in name for name in reasons):
        return "check the cooling: air flow, fans, room temperature; nvidia-smi -q -d TEMPERATURE"
    if any("power_brake" in name or name == "hw_slowdown" for name in reasons):
        return (
            "check the power supply: the hardware asks for less power; nvidia-smi -q -d PERFORMANCE"
        )
    if _POWER in reasons:
        return "check the power limit that is set (nvidia-smi -q -d POWER); -pl sets another"
    return "see why with nvidia-smi -q -d PERFORMANCE,CLOCK"


# ------------------------------------------------------------------------------------- contention
def _contended(rank: RankFacts, scene: Scene) -> Verdict | None:
    """Others on a rank's GPU: processes of somebody else, or other ranks."""
    twins = [
        other.rank
        for other in scene.facts.ranks
        if other.rank != rank.rank and rank.gpu_uuid and other.gpu_uuid == rank.gpu_uuid
    ]
    gpu, strangers = rank.gpu, rank.gpu.strangers
    name = f"GPU {gpu.index}" if gpu.index is not None else f"the GPU of rank {rank.rank}"
    if twins and rank.rank < min(twins):
        return Verdict(
            "CONTENTION",
            "warn",
            None,
            f"{words.capital(words.ranks([rank.rank, *twins], 3))} compute on the same GPU",
            rank=rank.rank,
            brief=f"{len(twins) + 1} ranks share a GPU",
            evidence=(f"{words.ranks([rank.rank, *twins])} all name {name}",),
            advice=("torch.cuda.set_device(local_rank) before the model is made, in each rank",),
            cause="ranks",
        )
    if not strangers:
        return None
    turns = _turns(rank.rank, scene)
    many = "another process" if len(strangers) == 1 else f"{len(strangers)} other processes"
    told = [
        f"{s.name} (pid {s.pid})"
        + (f" with {words.size(s.used_bytes)}" if s.used_bytes is not None else "")
        for s in strangers[:3]
    ]
    return Verdict(
        "CONTENTION",
        "note"
        if turns is None
        else "critical"
        if 1 - 1 / turns.factor >= scene.limits.critical
        else "warn",
        None,
        f"{words.capital(name)} is shared with {many}",
        rank=rank.rank,
        brief=f"{words.capital(name)} is shared",
        evidence=(f"on {name} also: {words.a_list(told)}", *_told_turns(rank, turns)),
        advice=(f"end {'it' if len(strangers) == 1 else 'them'}, or use another GPU (--gpu-ids)",),
        cause="processes",
    )


def _turns(rank: int, scene: Scene) -> Stretch | None:
    """What shows that the others on a rank's GPU compute: its own work waits for their turns."""
    stands = ("CONTENTION", rank) in scene.standing
    limits = scene.limits
    needed = limits.shared_stretch_held if stands else limits.shared_stretch
    means = next((r for r in scene.window.ranks if r.rank == rank), None)
    known = None if means is None else means.stretch
    return known if known is not None and known.factor >= needed else None


def _told_turns(rank: RankFacts, turns: Stretch | None) -> tuple[str, ...]:
    if turns is None:
        return ()
    return (
        f"what rank {rank.rank} does after backward takes {words.ms(turns.fast_us)} at its "
        f"fastest, but {words.ms(turns.mean_us)} on average: the GPU turns to others meanwhile",
    )


# ----------------------------------------------------------------------------------------- memory
def _pressed(rank: RankFacts, scene: Scene) -> Verdict | None:
    """An allocator that runs out of memory, or is made to give it back all the time."""
    limits, gpu = scene.limits, rank.gpu
    falls = [a - b for a, b in pairwise(gpu.memory_used_bytes) if a - b > limits.memory_fall * a]
    held = _held(rank)
    if rank.retries:
        times = "once" if rank.retries == 1 else f"{rank.retries} times"
        return Verdict(
            "MEMORY PRESSURE",
            "warn",
            None,
            f"Rank {rank.rank} ran out of GPU memory {times} in the last minute",
            rank=rank.rank,
            brief=f"Rank {rank.rank} runs out of GPU memory",
            evidence=tuple(
                text
                for text in (
                    f"the allocator of rank {rank.rank} flushed its cache and retried {times}",
                    held,
                )
                if text
            ),
            advice=(
                "a smaller batch on each GPU, or activation checkpointing",
                "where batches vary in size: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
            cause="retries",
        )
    if len(falls) < limits.memory_falls or gpu.strangers:
        return None
    used = gpu.memory_used_bytes
    return Verdict(
        "MEMORY PRESSURE",
        "warn",
        None,
        f"Rank {rank.rank} gives GPU memory back and takes it again all the time",
        rank=rank.rank,
        brief=f"Rank {rank.rank} keeps giving GPU memory back",
        evidence=(
            f"memory in use on its GPU fell {len(falls)} times in {len(used)} s, "
            f"between {words.size(max(used))} and {words.size(min(used))}",
        ),
        advice=(
            "no torch.cuda.empty_cache() in the loop: it waits for the GPU, and so does "
            "allocating anew",
        ),
        cause="empty_cache",
    )


def _held(rank: RankFacts) -> str | None:
    total = rank.gpu.memory_total_bytes
    if total is None or rank.reserved_bytes is None:
        return None
    return f"it holds {words.size(rank.reserved_bytes)} of {words.size(total)}"
