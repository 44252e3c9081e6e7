"""Play a simulated run into an analyser, as an analyst process would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from diagnose.sim_records import records
from diagnose.simulator import Job, Run, simulate
from torchtop.diagnose.analyser import Analyser

_MOST_NS = 180 * 1_000_000_000
Records = Iterable[tuple[str, dict[str, Any]]]


class Played(NamedTuple):
    """What came out."""

    analyser: Analyser
    analyses: list[dict[str, Any]]
    """One a second, and one at the end."""

    @property
    def last(self) -> dict[str, Any]:
        return self.analyses[-1]

    @property
    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = self.last["verdict"]
        return verdict

    @property
    def told(self) -> tuple[str, int | None, str | None]:
        """Kind, rank and phase of the last verdict."""
        return self.verdict["kind"], self.verdict["rank"], self.verdict["phase"]


def play(
    stream: Records, every_ns: int = 1_000_000_000, analyser: Analyser | None = None
) -> Played:
    """Feed records in order, and analyse once a second of their time.

    Of a time without records, only the last minutes are analysed.
    """
    analyser = Analyser() if analyser is None else analyser
    analyses: list[dict[str, Any]] = []
    due = now = 0
    for source, record in stream:
        now = record["mono_ns"]
        due = max(due, now - _MOST_NS) if due else now + every_ns
        while now >= due:
            analyses.append(analyser.analyse(due))
            due += every_ns
        analyser.feed(source, record)
    analyses.append(analyser.analyse(now))
    return Played(analyser, analyses)


def play_job(job: Job) -> tuple[Run, Played]:
    """Simulate a job and play it."""
    run = simulate(job)
    return run, play(records(run))
