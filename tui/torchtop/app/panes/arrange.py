"""Where each pane goes: a pure function of the size and of what there is to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

GUTTER = 2
"""Columns between panes that stand side by side."""

WIDE = 150
"""From here on there is a third column."""


_LOGS_LEAST = 6
"""Rows below which the logs are not worth their place."""


class Place(NamedTuple):
    """A rectangle of cells within the board."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Need:
    """What there is to show.

    Attributes:
        gpus: rows of the GPU table; 0 without a GPU.
        ranks: ranks of the session.
        idle: no session: the catalog takes the place of the training's panes.
        failed: the verdict's place tells the failure and takes more room.
        stepped: there are steps to show; before that, the logs tell more.
        workloads: entries of the catalog.
    """

    gpus: int = 0
    ranks: int = 1
    idle: bool = False
    failed: bool = False
    stepped: bool = True
    workloads: int = 0


def arrange(width: int, height: int, need: Need, zoom: str | None = None) -> dict[str, Place]:
    """The panes that are shown, by name, with their places."""
    if zoom:
        return {zoom: Place(0, 0, width, height)}
    if need.idle:
        return _idle(width, height, need)
    if width >= WIDE and height >= 30:
        return _wide(width, height, need)
    return _stacked(width, height, need)


def _gpu_height(need: Need, space: int) -> int:
    """Heading, titles and a row a GPU; in pairs, without titles, or with the host, to fit."""
    if not need.gpus:
        return min(6, max(3, space))
    for rows in (need.gpus + 2, need.gpus + 1, -(-need.gpus // 2) + 2, -(-need.gpus // 2) + 1):
        if rows <= space:
            return rows
    return max(2, space)


def _stacked(width: int, height: int, need: Need) -> dict[str, Place]:
    """Verdict, GPUs, step beside throughput and data; logs and host below where there is room."""
    verdict = 5 if height >= 20 else max(2, height // 4)
    middle = 8 if height >= 20 else max(3, height // 3)
    gpus = _gpu_height(need, max(2, height - verdict - middle))
    spare = height - verdict - gpus - middle
    if need.failed:
        verdict, spare = verdict + min(10, max(0, spare)), spare - min(10, max(0, spare))
    for grown in ("verdict", "middle", "middle", "middle", "middle", "verdict"):
        if spare > 0 and grown == "verdict":
            verdict, spare = verdict + 1, spare - 1
        elif spare > 0:
            middle, spare = middle + 1, spare - 1
    wanted = max(0, min(20, 10 + min(need.ranks, 8)) - middle)
    grow = min(wanted, max(0, spare - _LOGS_LEAST))
    middle, spare = middle + grow, spare - grow
    if spare < _LOGS_LEAST:
        middle, spare = middle + max(0, spare), 0
    places = {
        "verdict": Place(0, 0, width, verdict),
        "gpus": Place(0, verdict, width, gpus),
    }
    top = verdict + gpus
    if not need.stepped:
        places["logs"] = Place(0, top, width, middle)
        places.update(_lower(width, top + middle, spare) if spare else {})
        return places
    places.update(_middle(width, top, middle))
    if spare:
        places.update(_bottom(width, top + middle, spare))
    return places


def _middle(width: int, top: int, height: int) -> dict[str, Place]:
    """The step at the left, throughput above data at the right."""
    left = width * 58 // 100
    right = width - left - GUTTER
    data = max(2, min(6, height // 2))
    return {
        "step": Place(0, top, left, height),
        "throughput": Place(left + GUTTER, top, right, height - data),
        "data": Place(left + GUTTER, top + height - data, right, data),
    }


def _bottom(width: int, top: int, height: int) -> dict[str, Place]:
    if width < 100:
        if height < 14:
            return {"logs": Place(0, top, width, height)}
        half = width // 2 - 1
        lower = top + height - 7
        return {
            "logs": Place(0, top, width, height - 7),
            "host": Place(0, lower, half, 7),
            "events": Place(half + GUTTER, lower, width - half - GUTTER, 7),
        }
    left = width * 58 // 100
    right = width - left - GUTTER
    places = {"logs": Place(0, top, left, height)}
    if height >= 12:
        places["host"] = Place(left + GUTTER, top, right, height // 2)
        places["events"] = Place(left + GUTTER, top + height // 2, right, height - height // 2)
    else:
        places["host"] = Place(left + GUTTER, top, right, height)
    return places


def _lower(width: int, top: int, height: int) -> dict[str, Place]:
    """Host and events side by side."""
    left = width * 58 // 100
    return {
        "events": Place(0, top, left, height),
        "host": Place(left + GUTTER, top, width - left - GUTTER, height),
    }


def _wide(width: int, height: int, need: Need) -> dict[str, Place]:
    """Verdict, GPUs, step and logs at the left; throughput, data, host and events at the right."""
    left = width * 62 // 100
    right = width - left - GUTTER
    x = left + GUTTER
    verdict = 7 + (min(8, max(0, height - 40)) if need.failed else 0)
    gpus = _gpu_height(need, max(3, height - verdict - 12 - _LOGS_LEAST)) if need.gpus else 2
    rest = height - verdict - gpus
    step = min(max(12, rest * 6 // 10), 14 + min(need.ranks, 16))
    if rest - step < _LOGS_LEAST:
        step = rest
    logs = rest - step
    heights = {"throughput": max(9, height * 28 // 100), "data": 7, "host": 9}
    heights["events"] = height - sum(heights.values())
    if heights["events"] < 3:
        heights["host"] += heights.pop("events")
    places = {
        "verdict": Place(0, 0, left, verdict),
        "gpus": Place(0, verdict, left, gpus),
        "step": Place(0, verdict + gpus, left, step),
    }
    y = 0
    for name, size in heights.items():
        places[name] = Place(x, y, right, size)
        y += size
    if not need.stepped:
        logs += places.pop("step").height
    if logs:
        places["logs"] = Place(0, height - logs, left, logs)
    return places


def _idle(width: int, height: int, need: Need) -> dict[str, Place]:
    """GPUs above, as tall as there is room; the catalog below; the host beside or under it."""
    below = max(need.workloads + 1, 9) + 1
    beside = width >= 100
    host = 0 if beside else min(8, max(0, height - 4 - need.workloads - need.gpus))
    host = host if host >= 4 else 0
    gpus = min(height, 3 if not need.gpus else max(2, min(need.gpus + 2, height // 2)))
    if need.gpus:
        gpus = max(gpus, min(height - below - host, need.gpus * 10 + 2))
    top, rest = gpus, height - gpus
    places = {"gpus": Place(0, 0, width, gpus)}
    if rest <= 0:
        return places
    if beside:
        left = width * 58 // 100
        places["catalog"] = Place(0, top, left, rest)
        places["host"] = Place(left + GUTTER, top, width - left - GUTTER, rest)
        return places
    places["catalog"] = Place(0, top, width, rest - host)
    if host:
        places["host"] = Place(0, height - host, width, host)
    return places
