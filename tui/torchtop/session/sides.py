"""The sides of a comparison: sessions, as repeats of one thing, and in what the sides differ."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.session.load import Loaded, load, load_paths
from torchtop.session.measures import used_gpus
from torchtop.session.paths import SessionError, SessionPaths, list_sessions, read_json
from torchtop.session.values import child, children

MOST_BY_NAME = 30
"""Sessions that a name stands for, the latest: a baseline of last year is none."""

_NO_FACT_OF_REPEATS = ("host",)
"""May differ between repeats: a machine of a cloud has another name each morning."""

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Side:
    """One side: a letter to point at it with, and one run or several repeats."""

    letter: str
    runs: tuple[Loaded, ...]

    @property
    def name(self) -> str:
        """What its sessions are called."""
        first = self.runs[0]
        return str(first.summary.get("name") or first.paths.id)


def facts(loaded: Loaded) -> Facts:
    """What makes a session's figures what they are, by name: as far as it is recorded."""
    summary = loaded.summary
    told: dict[str, Any] = {"workload": summary.get("workload")}
    if loaded.meta.get("source") not in ("builtin", "file"):  # those have their options by name
        told["arguments"] = shlex.join(map(str, summary.get("argv") or []))
    for name, value in child(summary, "options").items():
        told[f"option {name}"] = str(value).lower() if isinstance(value, bool) else value
    told |= {"ranks": summary.get("world_size"), "nodes": summary.get("nodes")}
    told["device"] = _devices(summary)
    ranks = children(summary, "ranks")
    loader = child(ranks[0], "loader") if ranks else {}
    told |= {"batch a rank": loader.get("batch_size"), "loader workers": loader.get("workers")}
    told["data"] = "synthetic" if summary.get("synthetic_data") else None
    versions = child(summary, "versions")
    told |= {name: versions.get(name) for name in ("torch", "cuda", "nccl", "driver", "python")}
    told |= {"torchtop": versions.get("torchtop"), "host": loaded.meta.get("host")}
    return {name: str(value) for name, value in told.items() if value not in (None, "")}


def _devices(summary: Mapping[str, Any]) -> str:
    names = Counter(str(gpu.get("name")) for gpu in used_gpus(summary))
    if summary.get("device") == "cuda" and names:
        return ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))
    return str(summary.get("device") or "unknown")


def configuration(loaded: Loaded) -> tuple[tuple[str, str], ...]:
    """The facts that repeats of one thing have in common."""
    return tuple((k, v) for k, v in facts(loaded).items() if k not in _NO_FACT_OF_REPEATS)


def kind_of_work(loaded: Loaded) -> tuple[str | None, ...]:
    """The facts on which noise depends most: sessions that share them have it in common."""
    told = facts(loaded)
    return tuple(told.get(name) for name in ("workload", "ranks", "device"))


def differing(sides: Sequence[Side]) -> dict[str, list[str | None]]:
    """The facts in which sides differ, with each side's value; None where it has none."""
    each = [[facts(run) for run in side.runs] for side in sides]
    rows = {}
    for name in dict.fromkeys(name for side in each for told in side for name in told):
        values = [_joined(told.get(name) for told in side) for side in each]
        if len(set(values)) > 1:
            rows[name] = values
    return rows


def _joined(values: Iterable[str | None]) -> str | None:
    known = list(dict.fromkeys(value for value in values if value is not None))
    return " or ".join(known) if known else None


def choose(references: Sequence[str], each: bool = False) -> tuple[list[Side], list[str]]:
    """The sides that a command line names.

    A reference is a session, several separated by commas, or the name of several sessions of one
    configuration. Where all are single sessions and there are more of them than configurations,
    those of one configuration become a side.

    Args:
        references: one a side.
        each: group nothing.

    Returns:
        The sides, and what has to be said about the choice.

    Raises:
        SessionError: a session cannot be found or read, or there is but one side.
    """
    notes: list[str] = []
    groups = [_side(reference, notes) for reference in references]
    _refuse_doubles(groups)
    alone = all(len(group) == 1 for group in groups)
    if alone and not each and len(groups) > 2:
        groups = _grouped([group[0] for group in groups], notes)
    if len(groups) < 2:
        raise SessionError("a comparison has two sides: name two sessions (see: torchtop ls)")
    if len(groups) > 26:
        raise SessionError(f"{len(groups)} sides are too many: 26 at most")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [Side(a, tuple(g)) for a, g in zip(letters, groups, strict=False)], notes


def _side(reference: str, notes: list[str]) -> list[Loaded]:
    words = [word for word in reference.split(",") if word]
    if len(words) == 1:
        return _named(words[0], notes) or [load(words[0])]
    runs = [load(word) for word in words]
    if not runs:
        raise SessionError("a side has no session: write SESSION or SESSION,SESSION,...")
    if len({configuration(run) for run in runs}) > 1:
        notes.append(f"the sessions of {reference} are not repeats: their configurations differ")
    return runs


def _named(name: str, notes: list[str]) -> list[Loaded]:
    """All that have this name and the configuration of the latest of them; none for one alone."""
    found = [p for p in list_sessions() if (read_json(p.meta) or {}).get("name") == name]
    if len(found) < 2 or any(paths.id == name for paths in found):
        return []
    runs = _readable(found[:MOST_BY_NAME])
    alike = [r for r in runs if configuration(r) == configuration(runs[0])] if runs else []
    if len(alike) < len(found):
        notes.append(
            f"{name} stands for {len(alike)} of {len(found)} sessions of that name: "
            "those with figures, and with the latest one's configuration"
        )
    return alike


def _readable(found: Iterable[SessionPaths]) -> list[Loaded]:
    """Those that have ended with figures; what cannot be read is passed over."""
    runs = []
    for paths in found:
        try:
            run = load_paths(paths)
        except SessionError:
            continue
        if not run.running and run.measured_steps:
            runs.append(run)
    return runs


def _grouped(runs: Sequence[Loaded], notes: list[str]) -> list[list[Loaded]]:
    """Runs of one configuration together, if that leaves more than one side."""
    groups: dict[tuple[tuple[str, str], ...], list[Loaded]] = {}
    for run in runs:
        groups.setdefault(configuration(run), []).append(run)
    if not 1 < len(groups) < len(runs):
        return [[run] for run in runs]
    notes.append("sessions of one configuration are taken as repeats; --each keeps them apart")
    return list(groups.values())


def _refuse_doubles(groups: Sequence[Sequence[Loaded]]) -> None:
    """A session on two sides, or twice on one, would make its noise look small."""
    counted = Counter(run.paths.root.resolve() for group in groups for run in group)
    for root, times in counted.items():
        if times > 1:
            raise SessionError(f"{root.name} is named {times} times: each session counts once")
