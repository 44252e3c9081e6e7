"""Pauses that recur."""

from __future__ import annotations

from .. import words
from ..pauses import Recurring
from .case import Case, Line

_WHAT = {
    "eval": "evaluation",
    "save": "saving checkpoints",
    "gc": "garbage collection",
    "": "long steps",
}


def headline(case: Case) -> Line:
    """One sentence."""
    first, others = case.pauses.recurring[0], len(case.pauses.recurring) - 1
    if not first.what:
        step = f"One step in {first.every_steps} is far longer"
        return Line((f"{step}, {words.place(first.phase or 'other')}: {case.share}",))
    what = words.capital(_WHAT[first.what])
    if others:
        return Line((f"{what} and {others} more kinds of pause take {case.share}",))
    return Line((f"{what} takes {case.share} of the time",))


def evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    told: list[str | None] = [_one(pause) for pause in case.pauses.recurring]
    return [*told, f"other steps take {words.ms(case.window.step_us)}"]


def _one(pause: Recurring) -> str:
    name = _WHAT[pause.what]
    who = f" on rank {pause.rank}" if pause.rank is not None else ""
    every = f" {_every(pause)}" if pause.every_steps else ""
    hidden = pause.each_us - pause.cost_us
    queued = f", {words.seconds(hidden)} of it hidden by the GPU's queue"
    return (
        f"{name}{who}: {words.seconds(pause.each_us)} each{every}"
        + (queued if hidden > 0.1 * pause.each_us else "")
        + f"; {words.percent(pause.share)} of the time; {pause.count} so far"
    )


def _every(pause: Recurring) -> str:
    return "on each step" if pause.every_steps == 1 else f"every {pause.every_steps} steps"


def advice(case: Case) -> list[str | None]:
    """What to change."""
    return [text for pause in case.pauses.recurring for text in _against(case, pause)]


def _against(case: Case, pause: Recurring) -> list[str]:
    # Pauses that do not come at even distances are told without one.
    less_often = f"less often than {_every(pause)}" if pause.every_steps else "less often"
    if pause.what == "gc":
        return [
            "gc.freeze() after start-up takes what lives on out of collection; or gc.disable() and "
            "gc.collect() at the same step on all ranks",
        ]
    if pause.what == "save":
        alone = f"; rank {pause.rank} saves and the others wait" if pause.rank is not None else ""
        if case.facts.has_torch(2, 3) is False:
            return [f"save {less_often}{alone}"]
        return [
            f"save {less_often}, or in the background with "
            f"torch.distributed.checkpoint.async_save{alone}",
        ]
    if pause.what == "eval":
        return [f"evaluate {less_often}, or on fewer batches"]
    return [
        f"look for what the script does {_every(pause)} {words.doing(pause.phase or 'other')}: "
        "logging, images, metrics, checkpoints",
        *_compiles(case, pause),
        *_workers(case, pause),
    ]


def _compiles(case: Case, pause: Recurring) -> list[str]:
    """Inputs of ever new shapes."""
    graphs = case.facts.graphs
    if pause.phase not in ("forward", "backward") or graphs < case.limits.many_graphs:
        return []
    return [
        f"torch.compile has made {graphs} graphs so far: dynamic=True where the shapes of batches "
        "change"
    ]


def _workers(case: Case, pause: Recurring) -> list[str]:
    """Epochs that start their workers anew."""
    loader = case.facts.of(0).loader
    batches = loader.get("batches")
    if loader.get("persistent_workers") is not False or not loader.get("workers"):
        return []
    if not isinstance(batches, int) or abs(batches - (pause.every_steps or 0)) > 1:
        return []
    return [f"persistent_workers=True (it is off): each epoch of {batches} batches starts workers"]
