"""A host that issues kernels too slowly, or waits for its own device."""

from __future__ import annotations

from .. import words
from ..window import Window
from .case import Case, Line, busy_host, idlest, lag, other_rank, slowest_gpu

_MOST_CALLS = 3
"""Calls that are told as evidence; ``torchtop show`` tells all."""


# ---------------------------------------------------------------------------------------- launch
def launch_headline(case: Case) -> Line:
    """One sentence."""
    rank = case.candidate.rank
    whose = "The host" if rank is None else f"Rank {rank}'s host"
    if not case.candidate.sure:
        return Line((f"{whose} launches kernels more slowly than the GPU executes them",))
    return Line((f"{whose} launches too slowly: the GPU starves {case.share}",))


def launch_evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    window, rank = case.window, case.candidate.rank
    behind = lag(window, slowest_gpu(window, rank))
    return [
        f"{behind}: nothing is queued for it" if behind else None,
        idlest(case, rank),
        _hidden(case),
        busy_host(case, rank),
    ]


def _hidden(case: Case) -> str | None:
    rank = case.candidate.rank
    if rank is None or len(case.window.ranks) < 2:
        return None
    other = other_rank(case.window, rank)
    return (
        f"rank {other.rank} waits {words.ms(other.wait_us)} a step for it, and issues its own "
        "kernels meanwhile: that hides what its host needs"
    )


def launch_advice(case: Case) -> list[str | None]:
    """What to change. Fewer kernels or larger ones help; faster arithmetic does not."""
    facts, ranks = case.facts, len(case.window.ranks)
    batch = _samples(case)
    return [
        _compile(case),
        f"more work a kernel: a larger batch on each GPU{batch}; "
        + ("channels_last" if facts.low_precision else "amp and channels_last")
        + " would not help",
        _one_by_one(case),
        f"fewer GPUs at the same global batch: each of the {ranks} gets little work a launch"
        if ranks > 1
        else None,
    ]


def _compile(case: Case) -> str | None:
    """Fewer launches, or one for many, as far as that is not so already."""
    facts, breaks = case.facts, case.facts.compiling.get("graph_breaks")
    if facts.compiled and breaks:
        return (
            f"the model is compiled, with {breaks} graph breaks, at each of which the host takes "
            'over: TORCH_LOGS="graph_breaks" names their lines'
        )
    if facts.compiled:
        return (
            "the model is compiled already; CUDA graphs take the launches away where "
            'mode="reduce-overhead" is not set'
        )
    if facts.has_torch(2, 0) is False:
        return (
            "torch.cuda.make_graphed_callables(model, ...) replays forward and backward as CUDA "
            f"graphs (torch.compile needs PyTorch 2, this is {facts.torch})"
        )
    return 'torch.compile(model, mode="reduce-overhead") fuses kernels and replays CUDA graphs'


def _samples(case: Case) -> str:
    samples = case.window.ranks[0].samples
    return "" if samples is None else f" than {samples:.0f} samples"


def _one_by_one(case: Case) -> str | None:
    optimizer, share = case.facts.optimizer, case.window.share("optimizer")
    if optimizer.get("foreach") is not False or optimizer.get("fused") is True:
        return None
    if share < case.limits.note:
        return None
    return (
        "fused=True or foreach=True (foreach is off): the optimizer issues its kernels tensor by "
        f"tensor, {words.percent(share)} of the step"
    )


# ------------------------------------------------------------------------------------------ sync
def sync_headline(case: Case) -> Line:
    """One sentence."""
    place = words.place(case.candidate.phase or "other")
    return Line((f"The host waits for its GPU {place}, losing {case.share}",))


def sync_evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    window = case.window
    idle = {phase: us for phase, us in window.idle_us.items() if us > 0.01 * window.step_us}
    starves = [f"{phase} (up to {words.ms(us)})" for phase, us in idle.items()]
    return [
        blocked(case.window),
        f"then the queue of the GPU is empty, and it starves in {words.a_list(starves)}"
        if starves
        else None,
        idlest(case),
        *_waiting(case)[:_MOST_CALLS],
    ]


def _waiting(case: Case) -> tuple[str, ...]:
    """The calls that an inspected step made: of the rank in question, or of the first."""
    return case.facts.of(case.candidate.rank).waiting or ()


def blocked(window: Window) -> str | None:
    """Where a host waits for its device in each step, and for how long."""
    waits = {phase: us for phase, us in window.blocked_us.items() if us}
    if not waits:
        return None
    phase = max(waits, key=lambda name: waits[name])
    steps = (
        "" if window.blocked_part > 0.99 else f", in {words.percent(window.blocked_part)} of them"
    )
    return (
        f"the host waits {words.ms(waits[phase])} of each {words.ms(window.step_us)} step for its "
        f"GPU {words.doing(phase)}{steps}"
    )


def sync_advice(case: Case) -> list[str | None]:
    """What to change."""
    return [
        "keep results on the GPU and read them every 50 steps: .item(), .cpu(), print() and "
        "`if tensor:` wait for it",
        _scaler(case) if case.candidate.phase in ("pre_optimizer", "optimizer") else None,
        None if _waiting(case) else "torchtop inspect, or i in the viewer, names the lines",
    ]


def _scaler(case: Case) -> str:
    """What waits before the optimizer, by what computes in 16 bits."""
    dtype = case.facts.precision.get("autocast")
    if dtype == "bfloat16":
        return "autocast is bfloat16, which needs no GradScaler: it reads its flag in each step"
    if dtype is False and not case.facts.script.get("amp"):
        return (
            "nothing is computed in float16, so a GradScaler can go; clip_grad_norm_ waits where "
            "error_if_nonfinite=True or its norm is read"
        )
    return "GradScaler reads its overflow flag here in each step: bf16 autocast needs no GradScaler"
