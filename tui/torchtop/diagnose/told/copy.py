"""Copies of batches to the device."""

from __future__ import annotations

from .. import words
from ..copies import Copies, copies
from .case import Case, Line


def headline(case: Case) -> Line:
    """One sentence. How long a copy takes is not measured, so it says about."""
    if case.candidate.cause == "unpinned":
        return Line((f"Unpinned batches: the host waits for copies, about {case.share}",))
    return Line((f"Copying batches to the GPU takes about {case.share} of each step",))


def evidence(case: Case) -> list[str | None]:
    """Numbers that can be checked."""
    found = copies(case.window, case.facts, case.limits)
    if found is None:
        return []
    means, gpu = case.window.ranks[found.rank], case.facts.of(found.rank).gpu
    kind = "pinned" if found.pinned else "not pinned"
    speed = gpu.pcie_rx_bytes_per_s
    return [
        f"rank {found.rank} copies {words.size(found.step_bytes)} a step, from memory that is "
        f"{kind}: about {words.ms(found.us)}",
        f"forward, with the copy, takes {words.ms(means.phases_us['forward'])}, "
        f"backward {words.ms(means.phases_us['backward'])}",
        _lead(case, found),
        f"PCIe brings {words.rate(speed)} to its GPU" if speed is not None else None,
    ]


def _lead(case: Case, found: Copies) -> str | None:
    """That the host has lost its lead after the copy."""
    blocked = case.window.blocked_us.get("forward", 0.0)
    if found.pinned or not blocked:
        return None
    return f"its host waits {words.ms(blocked)} of each step there"


def advice(case: Case) -> list[str | None]:
    """What to change."""
    found = copies(case.window, case.facts, case.limits)
    size = "" if found is None else f" ({words.size(found.step_bytes)} now)"
    return [
        _pin(case, found) if case.candidate.cause == "unpinned" else None,
        "copy the next batch on a stream of its own while this one computes",
        f"send less{size}: uint8 or bf16, and convert on the GPU",
    ]


def _pin(case: Case, found: Copies | None) -> str:
    """Where its loader does not, or is none that could."""
    loader = case.facts.of(found.rank if found is not None else None).loader
    if loader.get("pin_memory") is False:
        return "pin_memory=True in the DataLoader (it is off), with .to(device, non_blocking=True)"
    return (
        "copy from pinned memory (the batch is not): tensor.pin_memory() on a thread beside the "
        "training, with .to(device, non_blocking=True)"
    )
