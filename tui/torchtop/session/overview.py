"""The sessions at a glance: one line's worth of each, cheap enough to look at hundreds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torchtop.session.finished import finished_steps
from torchtop.session.paths import SessionPaths, describe, liveness, read_json
from torchtop.session.presence import is_watched
from torchtop.session.progress import last_analyses, last_analysis
from torchtop.session.tail import Tail
from torchtop.session.values import child, number

State = Literal["starting", "running", "detached", "done", "failed", "stopped", "ended", "lost"]

LIVE = ("starting", "running", "detached")

Stage = Literal["no step yet", "warming up", "no step", "too short"]
"""Why there is no verdict: as long as a session runs, and for one that runs no more."""

_END_BYTES = 16 << 10


@dataclass(frozen=True)
class Entry:
    """One session.

    Attributes:
        paths: its directory.
        name: what it is called.
        workload: what runs in it; empty where that is not known.
        state: how it stands; detached is a live one that no viewer watches.
        started_s: Unix time of its start.
        wall_s: how long it ran, or has been running.
        steps: steps done.
        rate: its throughput.
        unit: samples/s, tokens/s or steps/s.
        ranks: how many.
        device: cuda or cpu.
        options: those that were given, as text.
        verdict: its kind.
        stage: what stands in the place of a verdict that cannot be known yet, or ever; or empty.
        severity: of the verdict.
        headline: of the verdict, or what ended the session.
        problem: why not all of it can be told.
    """

    paths: SessionPaths
    name: str
    workload: str
    state: State
    started_s: float | None = None
    wall_s: float | None = None
    steps: float | None = None
    rate: float | None = None
    unit: str = ""
    ranks: int | None = None
    device: str = ""
    options: str = ""
    verdict: str = ""
    stage: str = ""
    severity: str = ""
    headline: str = ""
    problem: str = ""

    @property
    def live(self) -> bool:
        """Whether it may still be running."""
        return self.state in LIVE


class Overview:
    """Looks at sessions again and again; one that has ended is read once."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[float, Entry]] = {}

    def look(self, sessions: Iterable[SessionPaths]) -> list[Entry]:
        """The sessions in their order."""
        return [self._entry(paths) for paths in sessions]

    def _entry(self, paths: SessionPaths) -> Entry:
        key = str(paths.root)
        try:
            stamp = paths.summary.stat().st_mtime
        except OSError:
            stamp = -1.0
        known = self._ended.get(key)
        if known and known[0] == stamp:
            return known[1]
        entry = entry_of(paths)
        if stamp >= 0 and entry.state in ("done", "failed", "stopped"):
            self._ended[key] = (stamp, entry)
        return entry


def entry_of(paths: SessionPaths) -> Entry:
    """What can be said of a session without reading all of it."""
    meta, alive = describe(paths), liveness(paths)
    told = (read_json(paths.summary) if alive == "ended" else None) or standing(paths)
    unit, rate = throughput(told)
    verdict = child(told, "verdict")
    state: State = "ended"
    if alive == "live":
        state = "running" if is_watched(paths) else "detached"
    elif alive != "ended":
        state = alive
    else:
        state = _end(paths, told.get("status"))
    failure = child(told, "exit").get("message") if state == "failed" else None
    ranks = number(meta.get("nproc"))
    return Entry(
        paths,
        name=str(meta.get("name") or paths.id),
        workload=str(meta.get("workload") or ""),
        state=state,
        started_s=number(meta.get("wall_s")),
        wall_s=number(told.get("wall_s")),
        steps=number(told.get("steps")),
        rate=rate,
        unit=unit,
        ranks=None if ranks is None else int(ranks),
        device=str(meta.get("device") or ""),
        options=" ".join(f"{key}={value}" for key, value in child(meta, "options").items()),
        verdict=str(verdict.get("kind") or ""),
        stage=stage_of(told, state in LIVE) or "",
        severity=str(verdict.get("severity") or ""),
        headline=str(failure or verdict.get("headline") or ""),
        problem=str(meta.get("problem") or ""),
    )


def _end(paths: SessionPaths, status: Any) -> State:
    """How a session ended: as its summary says, else its supervisor's last record."""
    for node in paths.nodes() if status is None else ():
        for record in Tail(node.events, last_bytes=_END_BYTES).poll()[-1:]:
            status = record.get("status") if record["kind"] == "end" else status
    return status if status in ("done", "failed", "stopped") else "ended"


def throughput(told: Any) -> tuple[str, float | None]:
    """The throughput of a summary or an analysis in the unit that it has, samples before all."""
    rates = child(told, "throughput")
    for name, unit in UNITS.items():
        value = number(rates.get(name))
        if value is not None:
            return unit, value
    return "", None


UNITS = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s", "steps_per_s": "steps/s"}
"""Fields of a throughput, and the units that they count in."""


def standing(paths: SessionPaths) -> dict[str, Any]:
    """How a session without an end stands, by its last analysis; the names are a summary's.

    One more is `warming_up`, as in the analysis.

    Its steps are those that the ranks have counted: one that is lost had no last analysis.
    """
    records = last_analyses(paths)
    last = last_analysis(records)
    ran = [record["mono_ns"] for record in records if "mono_ns" in record]
    return {
        "wall_s": (ran[-1] - ran[0]) / 1e9 if ran else None,
        "steps": max((last.get("steps"), finished_steps(paths)), key=lambda n: number(n) or 0),
        **{name: last.get(name) for name in _OF_THE_LAST},
    }


_OF_THE_LAST = ("throughput", "step_ms", "phases", "verdict", "warming_up", "probe")


def stage_of(told: Mapping[str, Any], live: bool) -> Stage | None:
    """What a session is at that has no verdict because too little of it was measured.

    Args:
        told: its summary, or what `standing` says of it.
        live: whether it may still be running.

    Returns:
        None where there is a verdict, and where another reason keeps it from being made.
    """
    verdict = child(told, "verdict")
    kind, steps = verdict.get("kind"), number(told.get("steps"))
    if child(told, "probe").get("disabled"):
        return None
    if kind != "UNDECIDED" and not (live and kind is None and not steps):  # before any analysis
        return None
    if not steps:
        return "no step yet" if live else "no step"
    # In a summary warming up is an UNDECIDED that has held for no time at all.
    if told.get("warming_up") is True or number(verdict.get("seconds")) == 0:
        return "warming up" if live else "too short"
    return None
