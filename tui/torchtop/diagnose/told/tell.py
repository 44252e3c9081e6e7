"""A bottleneck in words: one sentence, the evidence for it, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import words
from ..candidate import Candidate
from . import comm, copy, data, host, optimizer, periodic, straggler
from .case import Case, Line

_MOST_EVIDENCE = 4
_MOST_ADVICE = 3


class Teller(NamedTuple):
    """What there is to say of a kind of bottleneck."""

    headline: Callable[[Case], Line]
    evidence: Callable[[Case], list[str | None]]
    advice: Callable[[Case], list[str | None]]


TELLERS = {
    "DATA": Teller(data.headline, data.evidence, data.advice),
    "COMM": Teller(comm.headline, comm.evidence, comm.advice),
    "STRAGGLER": Teller(straggler.headline, straggler.evidence, straggler.advice),
    "LAUNCH": Teller(host.launch_headline, host.launch_evidence, host.launch_advice),
    "SYNC": Teller(host.sync_headline, host.sync_evidence, host.sync_advice),
    "H2D": Teller(copy.headline, copy.evidence, copy.advice),
    "OPTIMIZER": Teller(optimizer.headline, optimizer.evidence, optimizer.advice),
    "PERIODIC": Teller(periodic.headline, periodic.evidence, periodic.advice),
}


def headline(case: Case, severity: str, ranked: Sequence[Candidate]) -> str:
    """One sentence, with what costs about as much.

    Args:
        case: the case.
        severity: of its candidate.
        ranked: all candidates.
    """
    limits, candidate = case.limits, case.candidate
    ties = [
        c
        for c in ranked
        if c is not candidate and c.share > limits.tie * candidate.share and c.share >= limits.note
    ]
    start = "Almost healthy" if severity == "note" else "About as much each"
    if ties:
        alike = [f"{words.candidate_name(c.kind)} {words.percent(c.share)}" for c in ties]
        first = f"{start}: {words.candidate_name(candidate.kind)} {case.share}"
        more = f" and {len(alike)} more" if len(alike) > 1 else f", {alike[0]}"
        return words.headline(f"{first}, {', '.join(alike)}", first + more)
    texts, why = TELLERS[candidate.kind].headline(case)
    if severity == "note":
        texts, why = tuple(f"{start}. {text}" for text in texts), ""
    return words.headline(texts[0] + case.gain + why, *(text + case.gain for text in texts), *texts)


def evidence(case: Case) -> tuple[str, ...]:
    """Two to four sentences with numbers that can be checked on the screen."""
    found = [*TELLERS[case.candidate.kind].evidence(case), _left_out(case)]
    return first(found, _MOST_EVIDENCE)


def advice(case: Case) -> tuple[str, ...]:
    """Up to three suggestions, the most useful first; nothing that is so already."""
    return first(TELLERS[case.candidate.kind].advice(case), _MOST_ADVICE)


def first(sentences: Sequence[str | None], most: int) -> tuple[str, ...]:
    """The first sentences, of those that there are."""
    return tuple([sentence for sentence in sentences if sentence][:most])


def _left_out(case: Case) -> str | None:
    """The steps that are left out because they are rare."""
    pauses = case.window.pauses_us
    if not pauses:
        return None
    steps = "one step" if len(pauses) == 1 else f"{len(pauses)} steps"
    return f"left out as rare: {steps} of up to {words.ms(max(pauses))}"
