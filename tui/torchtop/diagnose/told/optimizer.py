"""An optimizer that takes longer than it has to."""

from __future__ import annotations

from .. import words
from ..updates import NOT_FUSED, PER_TENSOR, slow_updates
from .case import Case, Line, of_step

_WHY = {
    PER_TENSOR: ", tensor by tensor",
    NOT_FUSED: ", in several passes",
}


def headline(case: Case) -> Line:
    """One sentence."""
    why = _WHY.get(case.candidate.cause or "", "")
    return Line((f"The optimizer takes {case.share} of each step{why}",))


def evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    known, count = case.facts.optimizer, case.facts.ddp.get("parameters")
    name = known.get("optimizer") or "the optimizer"
    options = [f"{option}={known[option]}" for option in ("foreach", "fused") if option in known]
    updates = slow_updates(case.window, case.facts, case.limits)
    return [
        of_step(case.window, "optimizer", f"{name} ({', '.join(options)}) takes"),
        f"one pass over {words.count(count)} parameters takes about {words.ms(updates.least_us)}"
        if updates is not None and updates.least_us and isinstance(count, int)
        else None,
    ]


def advice(case: Case) -> list[str | None]:
    """What to change."""
    cause, known = case.candidate.cause, case.facts.optimizer
    ranks = len(case.window.ranks)
    now = ", ".join(f"{o}={known.get(o)}" for o in ("foreach", "fused"))
    return [
        f"fused=True ({now} now) updates all parameters in one pass" if cause else None,
        "foreach=True where fused=True is not possible" if cause == PER_TENSOR else None,
        "take fewer optimizer steps: a larger batch, or accumulate gradients",
        f"ZeroRedundancyOptimizer lets each of {ranks} ranks update its part"
        if ranks > 1
        else None,
    ]
