"""What gradients travel over, and how fast at the least."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import Facts
from .thresholds import Thresholds
from .window import Window

NETWORK = "the network"
_NVLINK_5 = ("B100", "B200", "B300")


@dataclass(frozen=True)
class Link:
    """The path of the gradients; bytes a second."""

    name: str | None
    """NVLink, PCIe, the network, or None where nothing tells."""
    reached: float | None
    """Bus bandwidth that the all-reduce reaches at the least."""
    limit: float | None
    """What the link can do in one direction."""
    unused_nvlinks: int = 0
    """Links that a GPU has, and that carry nothing."""
    compressed: bool = False
    """Whether they carry far less than the gradients have."""


def traffic_bytes(window: Window, facts: Facts) -> float | None:
    """What a rank sends and receives a step: 2 (W-1) / W of the gradients.

    Source: nccl-tests, PERFORMANCE.md, bus bandwidth of an all-reduce.
    """
    size, world = facts.ddp.get("gradient_bytes"), len(window.ranks)
    if not isinstance(size, (int, float)) or size <= 0 or world < 2:
        return None
    return 2 * (world - 1) / world * size


def link(window: Window, facts: Facts, limits: Thresholds) -> Link:
    """The link between the ranks.

    How long the all-reduce takes is not known, but it takes place between the start of backward
    and the end of the wait for it. Over that time its bandwidth is what it reaches at the least.
    """
    traffic = traffic_bytes(window, facts)
    busy_us = window.frontier_us["backward"] + window.frontier_us["exposed_comm"]
    reached = traffic / (busy_us / 1e6) if traffic is not None and busy_us else None
    if len({rank.host for rank in facts.ranks}) > 1:
        return Link(NETWORK, reached, None)
    if not window.cuda:
        return Link(None, reached, None)
    gpus = [rank.gpu for rank in facts.ranks]
    counts = [gpu.nvlink_links for gpu in gpus]
    if not counts or None in counts:
        return Link(None, reached, None)
    links = min(count for count in counts if count is not None)
    if not links:
        return Link("PCIe", reached, None)
    seen = max((gpu.nvlink_bytes_per_s or 0.0 for gpu in gpus), default=0.0)
    told = any(gpu.nvlink_bytes_per_s is not None for gpu in gpus)
    carried = None
    if told and traffic is not None:
        carried = seen * window.step_us / 1e6 / traffic
    if carried is not None and carried < limits.link_unused:
        return Link("PCIe or host memory", reached, None, links)
    fifth = any(name in gpu.name for gpu in gpus for name in _NVLINK_5)
    each = limits.nvlink5_gb_s if fifth else limits.nvlink_gb_s
    compressed = carried is not None and carried < limits.link_compressed
    return Link("NVLink", reached, links * each * 1e9, compressed=compressed)
