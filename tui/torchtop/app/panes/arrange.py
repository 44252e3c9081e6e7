"""Where each pane goes: a pure function of the size and of what there is to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

GUTTER = 2
"""Columns between panes that stand side by side."""

WIDE = 150
"""From here on there is a third column."""


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
        workloads: entries of the catalog.
    """

    gpus: int = 0
    ranks: int = 1
    idle: bool = False
    failed: bool = False
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
    if need.failed and spare > 0:
        grow = min(10, spare)
        verdict, spare = verdict + grow, spare - grow
    elif spare >= 3 and height >= 28:
        verdict, spare = verdict + 1, spare - 1
    wanted = min(18, 9 + min(need.ranks, 8)) - middle
    grow = max(0, min(wanted, spare if spare < 9 else spare - 6))
    middle, spare = middle + grow, spare - grow
    if spare < 5:
        middle, spare = middle + spare, 0
    places = {
        "verdict": Place(0, 0, width, verdict),
        "gpus": Place(0, verdict, width, gpus),
    }
    top = verdict + gpus
    places.update(_middle(width, top, middle))
    if spare:
        places.update(_bottom(width, top + middle, spare))
    return places


def _middle(width: int, top: int, height: int) -> dict[str, Place]:
    left = width * 57 // 100
    right = width - left - GUTTER
    data = min(6, max(3, height * 3 // 8))
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
    left = width * 57 // 100
    right = width - left - GUTTER
    places = {"logs": Place(0, top, left, height)}
    if height >= 12:
        places["host"] = Place(left + GUTTER, top, right, height // 2)
        places["events"] = Place(left + GUTTER, top + height // 2, right, height - height // 2)
    else:
        places["host"] = Place(left + GUTTER, top, right, height)
    return places


def _wide(width: int, height: int, need: Need) -> dict[str, Place]:
    """Two thirds for verdict, GPUs and step; one third for the host, throughput, data, events."""
    left = width * 62 // 100
    right = width - left - GUTTER
    x = left + GUTTER
    verdict = 7 + (min(8, max(0, height - 40)) if need.failed else 0)
    gpus = _gpu_height(need, max(3, height - verdict - 10 - 6))
    rest = height - verdict - gpus
    step = min(max(10, rest * 6 // 10), 12 + min(need.ranks, 16))
    logs = rest - step
    if logs < 5:
        step, logs = rest, 0
    places = {
        "verdict": Place(0, 0, left, verdict),
        "gpus": Place(0, verdict, left, gpus),
        "step": Place(0, verdict + gpus, left, step),
        "throughput": Place(x, 0, right, max(8, verdict + gpus - 8)),
    }
    y = places["throughput"].height
    for name, size in (("data", 7), ("host", max(7, min(11, (height - y - 7) // 2)))):
        places[name] = Place(x, y, right, size)
        y += size
    if logs:
        places["logs"] = Place(0, height - logs, left, logs)
    places["events"] = Place(x, y, right, height - y)
    return places


def _idle(width: int, height: int, need: Need) -> dict[str, Place]:
    """GPUs above, the catalog below, the host beside or under it."""
    gpus = min(_gpu_height(need, max(3, height // 2)), height)
    rest = height - gpus
    places = {"gpus": Place(0, 0, width, gpus)}
    if not need.gpus:
        places["gpus"] = Place(0, 0, width, min(3, height))
        rest = height - places["gpus"].height
    top = height - rest
    if width >= 100:
        left = width * 57 // 100
        places["catalog"] = Place(0, top, left, rest)
        places["host"] = Place(left + GUTTER, top, width - left - GUTTER, rest)
        return places
    host = min(7, max(0, rest - 4 - min(need.workloads, 6)))
    places["catalog"] = Place(0, top, width, rest - host)
    if host >= 4:
        places["host"] = Place(0, height - host, width, host)
    return places
