"""Baselines: the session of a workload that later ones are held against, kept by torchtop.

``$TORCHTOP_HOME/baselines.json``: schema, baselines {workload: {session, name, directory,
samples_per_s, tokens_per_s, steps_per_s, written_s (Unix time)}}. The figures stand in it, so that
a baseline outlives its session's directory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtop.session.load import Loaded
from torchtop.session.overview import UNITS
from torchtop.session.paths import SessionError, home, private_dir, read_json, write_json
from torchtop.session.records import SCHEMA
from torchtop.session.values import child, number


@dataclass(frozen=True)
class Baseline:
    """What later sessions of a workload are held against.

    Attributes:
        workload: whose.
        session: the id of the session.
        name: what it was called.
        directory: where it was.
        rates: its samples_per_s, tokens_per_s and steps_per_s, as far as they were measured.
    """

    workload: str
    session: str
    name: str
    directory: str
    rates: Mapping[str, float]

    def speed_up(self, throughput: Mapping[str, Any]) -> tuple[float, str, float] | None:
        """How many times as fast a throughput is, its unit, and the baseline's value in it.

        Args:
            throughput: of a summary or an analysis.

        Returns:
            None where the two have no unit in common.
        """
        for name, unit in UNITS.items():
            now, then = number(throughput.get(name)), self.rates.get(name)
            if now is not None and then:
                return now / then, unit, then
        return None


def _file() -> Path:
    return home() / "baselines.json"


def read_baselines() -> dict[str, Baseline]:
    """The baselines by workload; what makes no sense is left out."""
    try:
        told = child(read_json(_file()), "baselines")
    except SessionError:
        return {}
    found = {}
    for workload, entry in told.items():
        if not isinstance(entry, Mapping):
            continue
        rates = {name: number(entry.get(name)) for name in UNITS}
        found[str(workload)] = Baseline(
            str(workload),
            str(entry.get("session") or ""),
            str(entry.get("name") or entry.get("session") or ""),
            str(entry.get("directory") or ""),
            {name: rate for name, rate in rates.items() if rate is not None and rate > 0},
        )
    return found


def mark(loaded: Loaded) -> Baseline:
    """Make a session the baseline of its workload.

    Raises:
        SessionError: it has no figures, or the state directory cannot be written.
    """
    workload = loaded.summary.get("workload") or loaded.meta.get("workload")
    rates = child(loaded.summary, "throughput")
    known = {name: rate for name in UNITS if (rate := number(rates.get(name)))}
    if not workload or not known or not loaded.measured_steps:
        raise SessionError(
            f"{loaded.paths.id} cannot be a baseline: it has no step after its warm-up"
        )
    name = str(loaded.summary.get("name") or loaded.paths.id)
    told = str(loaded.meta.get("id") or loaded.paths.id)  # a directory may have been renamed
    made = Baseline(str(workload), told, name, str(loaded.paths.root), known)
    _write({**read_baselines(), made.workload: made})
    return made


def unmark(workload: str) -> None:
    """Leave a workload without a baseline.

    Raises:
        SessionError: the state directory cannot be written.
    """
    _write({name: kept for name, kept in read_baselines().items() if name != workload})


def _write(baselines: Mapping[str, Baseline]) -> None:
    told = {
        workload: {
            "session": kept.session,
            "name": kept.name,
            "directory": kept.directory,
            **kept.rates,
            "written_s": time.time(),
        }
        for workload, kept in baselines.items()
    }
    try:
        private_dir(home())
        write_json(_file(), {"schema": SCHEMA, "baselines": told})
    except OSError as error:
        raise SessionError(f"cannot write {_file()}: {error.strerror}") from None


class Watched:
    """The baselines as they stand in the file, read again when it has changed."""

    def __init__(self) -> None:
        self._stamp: tuple[int, int] | None = None
        self._known: dict[str, Baseline] = {}

    def of(self, workload: Any) -> Baseline | None:
        """The baseline of a workload."""
        try:
            status = _file().stat()
            stamp = (status.st_mtime_ns, status.st_size)
        except (OSError, SessionError):
            stamp = None
        if stamp != self._stamp:
            self._stamp, self._known = stamp, read_baselines() if stamp else {}
        return self._known.get(str(workload))
