"""A session as those read it that compare, export and report: chosen, understood, summed up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchtop.session.find import find_session
from torchtop.session.paths import (
    Liveness,
    SessionError,
    SessionPaths,
    describe,
    liveness,
)
from torchtop.session.progress import last_analyses, last_analysis
from torchtop.session.records import SCHEMA
from torchtop.session.saved import saved_summary
from torchtop.session.summary import build_summary
from torchtop.session.values import child, number


@dataclass(frozen=True)
class Loaded:
    """One session.

    Attributes:
        paths: its directory.
        meta: its ``session.json``.
        summary: as it was saved at the end; as it stands of one that has none.
        alive: whether it still runs.
    """

    paths: SessionPaths
    meta: Mapping[str, Any]
    summary: Mapping[str, Any]
    alive: Liveness

    @property
    def running(self) -> bool:
        """Whether its figures may still change."""
        return self.alive in ("live", "starting")

    @property
    def measured_steps(self) -> int:
        """Steps behind the summary's figures: those after the warm-up."""
        done, warm = (number(self.summary.get(key)) for key in ("steps", "warmup_steps"))
        return max(0, int((done or 0) - (warm or 0)))


def load(reference: str | None) -> Loaded:
    """The session that a reference names (see `find_session`).

    Raises:
        SessionError: there is none, or it cannot be read.
    """
    return load_paths(find_session(reference))


def load_paths(paths: SessionPaths) -> Loaded:
    """A session by its directory.

    Raises:
        SessionError: it was made by a newer torchtop, or its records make no sense.
    """
    meta, alive = describe(paths), liveness(paths)
    _check_schema(paths, meta)
    summary: Mapping[str, Any] | None = saved_summary(paths)
    if summary is None or alive != "ended":  # one may be saved of a run that goes on
        summary = as_it_stands(paths)
    _check_schema(paths, summary)
    return Loaded(paths, meta, summary, alive)


def as_it_stands(paths: SessionPaths) -> dict[str, Any]:
    """The summary of a run that has not ended: its first minute is in the analysis alone.

    So is that it hangs now, which is told before all that went well until then.

    Raises:
        SessionError: its records make no sense.
    """
    summary, last = _summed_up(paths), last_analysis(last_analyses(paths))
    names: tuple[str, ...] = ("throughput", "step_ms", "phases", "verdict")
    if any(number(rate) for rate in child(summary, "throughput").values()):
        names = ("verdict",) if child(last, "verdict").get("kind") == "HUNG" else ()
    return {**summary, **{name: last[name] for name in names if last.get(name)}}


def _check_schema(paths: SessionPaths, record: Mapping[str, Any]) -> None:
    schema = record.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise SessionError(
            f"{paths.id} was made by a newer torchtop (schema {schema}, known here: {SCHEMA}); "
            "update torchtop to read it"
        )


def _summed_up(paths: SessionPaths) -> dict[str, Any]:
    try:
        return build_summary(paths)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SessionError(
            f"{paths.id} cannot be read: its records are not what they should be "
            f"({type(error).__name__})"
        ) from None
