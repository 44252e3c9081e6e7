"""What a recorded session of a fault holds: its parts, the probe's steps, the verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from score.trace import PHASES
from torchtop.session.paths import SessionPaths, read_json
from torchtop.session.tail import Tail

Phases = dict[str, float]
"""Microseconds by phase."""

Steps = dict[int, dict[int, Phases]]
"""By rank and step."""


@dataclass(frozen=True)
class Part:
    """A part of a run's schedule, as its script has told it.

    Attributes:
        mode: fault, fixed or profile.
        from_step: its first step.
        to_step: one past its last step; None where it has not got there.
        settled_step: the first step after its warm-up.
        settled_ns: when that began, on the session's monotonic clock.
        end_ns: when the last step was done; None as for `to_step`.
    """

    mode: str
    from_step: int
    to_step: int | None
    settled_step: int | None = None
    settled_ns: int | None = None
    end_ns: int | None = None

    @property
    def step_ms(self) -> float | None:
        """Mean time of a step after the warm-up, pauses and all."""
        if self.to_step is None or self.settled_step is None or self.to_step <= self.settled_step:
            return None
        if self.end_ns is None or self.settled_ns is None:
            return None
        return (self.end_ns - self.settled_ns) / (self.to_step - self.settled_step) / 1e6


@dataclass(frozen=True)
class Recording:
    """One session.

    Attributes:
        parts: of its schedule, by mode.
        steps: what the probes recorded.
        ends_ns: when each recorded step of rank 0 ended.
        analyses: in order.
        headers: of the ranks' files.
        lags_us: how far rank 0's device was behind its host after backward, by step.
    """

    parts: dict[str, Part]
    steps: Steps
    ends_ns: dict[int, int]
    analyses: list[dict[str, Any]]
    headers: dict[int, dict[str, Any]]
    lags_us: dict[int, int] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """What rank 0 computed on."""
        return str(self.headers.get(0, {}).get("device", {}).get("name"))

    @property
    def world_size(self) -> int:
        """How many ranks there were; two where the files do not tell."""
        told = self.headers.get(0, {}).get("world_size")
        return told if isinstance(told, int) else 2

    @property
    def misaligned(self) -> bool:
        """Whether the probe counts steps otherwise than the script: then nothing can be compared.

        The script waits for the device before the first step after a warm-up, so the probe has
        seen the steps before end by then, and no other.
        """
        for part in self.parts.values():
            if part.settled_ns is not None and part.settled_step is not None:
                for step, end_ns in self.ends_ns.items():
                    if (end_ns <= part.settled_ns) != (step < part.settled_step):
                        return True
        return False


def read(root: Path) -> Recording:
    """Read a session directory."""
    paths = SessionPaths(root)
    parts: dict[str, Part] = {}
    steps: Steps = {}
    ends: dict[int, int] = {}
    headers: dict[int, dict[str, Any]] = {}
    lags: dict[int, int] = {}
    for file in sorted(paths.ranks.glob("*.jsonl")):
        if file.name.endswith(".process.jsonl"):
            continue
        rank = int(file.name.split("-")[0])
        for record in _records(file):
            if record["kind"] == "header":
                headers[rank] = record
            elif record["kind"] == "steps":
                _take_steps(record, steps.setdefault(rank, {}), ends if rank == 0 else {})
                if rank == 0:
                    pairs = zip(record["step"], record.get("lag_backward_us") or (), strict=False)
                    lags.update((step, lag) for step, lag in pairs if lag is not None)
            elif rank == 0 and isinstance(told := record.get("part"), dict):
                parts[told["mode"]] = Part(**told)
    return Recording(parts, steps, ends, list(_records(paths.analysis)), headers, lags)


def versions(root: Path) -> dict[str, Any]:
    """Of what was run."""
    return (read_json(SessionPaths(root).meta) or {}).get("versions") or {}


def traced(path: Path) -> dict[int, list[dict[str, Any]]]:
    """The steps that traces show, by rank; empty where there are none."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {int(rank): rows for rank, rows in content.items()}


def _records(file: Path) -> Iterator[dict[str, Any]]:
    tail = Tail(file)
    while batch := tail.poll():
        yield from batch


def _take_steps(record: dict[str, Any], rows: dict[int, Phases], ends: dict[int, int]) -> None:
    for index, step in enumerate(record["step"]):
        values = {phase: record[f"{phase}_us"][index] for phase in PHASES}
        ends[step] = record["end_ns"][index]
        if None not in values.values():
            rows[step] = values
