"""A run that nothing holds back, and what could make it faster all the same."""

from __future__ import annotations

from .. import words
from ..facts import Facts, GpuFacts, RankFacts
from ..thresholds import Thresholds
from ..window import Window
from . import host
from .case import slowest_gpu, utilization


def headline(window: Window, compute: float) -> str:
    """One sentence; `compute` is the share of the step in forward, backward and optimizer."""
    who = "GPUs compute" if window.cuda else "CPUs compute"
    return f"Healthy: the {who} {words.percent(compute)} of each step"


def evidence(window: Window, facts: Facts, limits: Thresholds) -> tuple[str, ...]:
    """Numbers that can be checked."""
    waits = (
        f"waiting for data {words.percent(window.share('data'))}, "
        f"gradient communication {words.percent(window.share('exposed_comm'))} of each step"
    )
    lag = window.critical_lag_us
    if window.cuda and lag is not None:
        waits += f"; {slowest_gpu(window)} runs {words.ms(lag)} behind its host"
    harmless = host.blocked(window) if window.blocked_part >= limits.sync_steps else None
    found = [
        where(window),
        waits,
        _parts(facts) or utilization(facts),
        f"{harmless}; that costs less than {words.percent(limits.note)} here" if harmless else None,
        None if window.cuda else _busy(facts, limits),
        _power(facts, limits),
    ]
    return tuple([text for text in found if text])


def _busy(facts: Facts, limits: Thresholds) -> str | None:
    """A host without a core to spare, on which ranks take turns."""
    for known in facts.hosts.values():
        if known.is_busy(limits.host_busy_percent) and known.ranks > 1:
            cores = f"{known.cores} cores" if known.cores else "the cores"
            return f"{known.ranks} ranks share {cores}, {known.cpu_percent:.0f} % busy"
    return None


def where(window: Window) -> str:
    """Where a step passes."""
    phases = window.frontier_us
    return (
        f"of a {words.ms(window.step_us)} step: forward {words.ms(phases['forward'])}, "
        f"backward {words.ms(phases['backward'])}, optimizer {words.ms(phases['optimizer'])}"
    )


def _least_tensor(facts: Facts) -> RankFacts | None:
    known = [rank for rank in facts.ranks if rank.gpu.tensor_active is not None]
    return min(known, key=lambda rank: rank.gpu.tensor_active or 0.0, default=None)


def _parts(facts: Facts) -> str | None:
    """Which parts of a GPU are at work: utilization alone does not tell."""
    least = _least_tensor(facts)
    if least is None or least.util_percent is None:
        return None
    gpu = least.gpu
    parts = (
        ("SMs", gpu.sm_active),
        ("tensor cores", gpu.tensor_active),
        ("memory", gpu.dram_active),
    )
    told = [f"{name} {words.percent(value)}" for name, value in parts if value is not None]
    return (
        f"the GPU of rank {least.rank} is busy {least.util_percent:.0f} % of the time: "
        f"{', '.join(told)}"
    )


def _power(facts: Facts, limits: Thresholds) -> str | None:
    """A GPU at its power limit: that is its design."""
    for rank in facts.ranks:
        gpu = rank.gpu
        if gpu.throttle.get("sw_power_cap", 0.0) >= limits.throttle_ticks and _is_slower(gpu):
            limit = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f} W"
            return (
                f"the GPU of rank {rank.rank} is at its power limit{limit}: "
                f"{gpu.sm_clock_mhz:.0f} of {gpu.sm_clock_max_mhz:.0f} MHz"
            )
    return None


def _is_slower(gpu: GpuFacts) -> bool:
    return bool(gpu.sm_clock_mhz and gpu.sm_clock_max_mhz) and (
        (gpu.sm_clock_mhz or 0) < 0.98 * (gpu.sm_clock_max_mhz or 0)
    )


def advice(window: Window, facts: Facts, limits: Thresholds) -> tuple[str, ...]:
    """What else could make it faster."""
    found = [
        _tensor_cores(facts, limits) if window.cuda else None,
        _memory(facts, limits) if window.cuda else None,
        _deterministic(facts) if window.cuda else None,
        _threads(facts, limits) if not window.cuda else None,
    ]
    return tuple(text for text in found if text)


def _tensor_cores(facts: Facts, limits: Thresholds) -> str | None:
    """Arithmetic that passes by the units that are made for it."""
    least = _least_tensor(facts)
    if least is None or (least.gpu.tensor_active or 0.0) >= limits.tensor_idle:
        return None
    if facts.low_precision:
        return None
    active = words.percent(least.gpu.tensor_active or 0.0)
    products = facts.precision.get("matmul_dtypes")
    known = ", and matrix products are in float32" if products else ""
    tf32 = "" if facts.tf32 else ', or torch.set_float32_matmul_precision("high") for TF32'
    return (
        f"the tensor cores are active {active} of the time{known}: "
        f"torch.autocast(dtype=torch.bfloat16){tf32}"
    )


def _memory(facts: Facts, limits: Thresholds) -> str | None:
    """Kernels that are bound by memory."""
    busy = [r.gpu.dram_active for r in facts.ranks if r.gpu.dram_active is not None]
    if not busy or min(busy) < limits.dram_busy:
        return None
    if facts.compiled or facts.has_torch(2, 0) is False:
        return None
    return (
        f"memory is busy {words.percent(min(busy))} of the time: torch.compile fuses kernels that "
        "would each read and write it"
    )


def _deterministic(facts: Facts) -> str | None:
    """Kernels that are chosen for their results, not for their speed."""
    if facts.precision.get("deterministic") is not True:
        return None
    return (
        "torch.use_deterministic_algorithms is on: without it, faster kernels may be chosen where "
        "runs need not repeat to the bit"
    )


def _threads(facts: Facts, limits: Thresholds) -> str | None:
    """Cores that a run on the CPU leaves idle."""
    for host_facts in facts.hosts.values():
        cores, idle = host_facts.cores, host_facts.idle_cores
        percents = [rank.cpu_percent for rank in facts.ranks if rank.cpu_percent is not None]
        if not cores or idle is None or idle < limits.cores_idle * cores or not percents:
            continue
        return (
            f"more threads (OMP_NUM_THREADS) or ranks: {idle} of {cores} cores are idle, "
            f"and a rank uses {max(percents) / 100:.1f}"
        )
    return None
