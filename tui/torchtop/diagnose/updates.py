"""The least time that an optimizer's update can take, and what keeps it from that."""

from __future__ import annotations

from typing import NamedTuple

from .facts import Facts
from .thresholds import Thresholds
from .window import Window

PER_TENSOR = "per_tensor"
NOT_FUSED = "not_fused"

_FUSABLE = ("SGD", "Adam", "AdamW", "Adagrad")
"""The optimizers of torch that know ``fused=True``."""

_ADAM_BYTES = 28
"""A parameter in float32: read it, its gradient and two moments; write all but the gradient."""
_SGD_BYTES = 20
"""The same with one moment."""


class Updates(NamedTuple):
    """An optimizer that could be faster."""

    cause: str | None
    least_us: float
    """What one pass over the memory takes."""


def slow_updates(window: Window, facts: Facts, limits: Thresholds) -> Updates | None:
    """How an optimizer could be faster; None where it does all that it can."""
    optimizer = facts.optimizer
    if not optimizer or optimizer.get("fused") is True:
        return None
    count, name = facts.ddp.get("parameters"), str(optimizer.get("optimizer", ""))
    moved = _ADAM_BYTES if "adam" in name.lower() else _SGD_BYTES
    speed = limits.dram_gb_s if window.cuda else limits.dram_cpu_gb_s
    least_us = (count if isinstance(count, int) else 0) * moved / speed / 1000
    if optimizer.get("foreach") is False:
        return Updates(PER_TENSOR, least_us)
    return Updates(NOT_FUSED if name in _FUSABLE else None, least_us)
