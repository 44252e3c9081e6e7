"""Since when verdicts and findings stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .hysteresis import Held
from .verdict import Verdict


class Began(NamedTuple):
    """When something began."""

    since_ns: int
    from_step: int | None


class Standing:
    """Remembers the verdict and the findings from one analysis to the next."""

    def __init__(self) -> None:
        self.held: Held | None = None
        self.findings: dict[tuple[str, int | None], Began] = {}

    def hold(self, now_ns: int, verdict: Verdict, first_step: int | None) -> Held:
        """The verdict of now, and since when it stands.

        Args:
            now_ns: the present.
            verdict: the verdict.
            first_step: where it begins, if it is new.
        """
        held = self.held
        if held is not None and held.is_same(verdict.kind, verdict.rank):
            since, start = held.since_ns, held.from_step
        else:
            since, start = now_ns, first_step
        self.held = Held(
            verdict.kind, verdict.rank, verdict.phase, verdict.severity, since, start, verdict.of
        )
        return self.held

    def keep(self, now_ns: int, found: Sequence[Verdict], first_step: int | None) -> None:
        """The findings of now; those that are not among them have ended."""
        self.findings = {
            (finding.kind, finding.rank): self.findings.get(
                (finding.kind, finding.rank), Began(now_ns, first_step)
            )
            for finding in found
        }


def stood(verdict: Verdict, began: Began | Held, now_ns: int, last: int | None) -> dict[str, Any]:
    """A verdict's fields, with the time and the steps for which it stands."""
    return verdict.fields() | {
        "from_step": began.from_step,
        "to_step": last,
        "since_s": round((now_ns - began.since_ns) / 1e9, 3),
    }
