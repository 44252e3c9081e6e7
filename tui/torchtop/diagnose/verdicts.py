"""The verdict: what holds the run back, how much, why one may believe it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import advice, evidence, words
from .candidates import Candidate, candidates
from .facts import Facts
from .hysteresis import Held, choose
from .thresholds import Thresholds
from .window import Window


@dataclass(frozen=True)
class Verdict:
    """The fields of a ``verdict`` that do not depend on when it began."""

    kind: str
    severity: str
    share: float | None
    headline: str
    rank: int | None = None
    phase: str | None = None
    gain_bound: float | None = None
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """As in a record."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "share": _rounded(self.share, 4),
            "rank": self.rank,
            "phase": self.phase,
            "gain_bound": _rounded(self.gain_bound, 3),
            "headline": self.headline,
            "evidence": list(self.evidence),
            "advice": list(self.advice),
        }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def undecided(headline: str, *told: str | None) -> Verdict:
    """The verdict where the evidence does not decide."""
    return Verdict(
        "UNDECIDED", "unknown", None, headline, evidence=tuple(text for text in told if text)
    )


def judge(
    window: Window, facts: Facts, held: Held | None, limits: Thresholds
) -> tuple[Verdict, tuple[Candidate, ...]]:
    """Decide on a window.

    Args:
        window: at least `window_steps` steps and `window_s` seconds, without warm-up.
        facts: what is known beside the steps.
        held: the verdict that stands, or None.
        limits: thresholds.

    Returns:
        The verdict, and all candidates, largest first.
    """
    ranked = candidates(window, facts, held, limits)
    chosen = choose([c for c in ranked if not _is_jitter(c, window, held, limits)], held, limits)
    if window.unknown and (chosen is None or len(window.ranks) > 1):
        return _partly_unknown(window, ranked, limits), ranked
    unexplained = _unexplained(window, limits)
    if unexplained and (chosen is None or unexplained[0] > chosen[0].share):
        return unexplained[1], ranked
    if chosen is None:
        return _nothing_found(window, facts, held, limits), ranked
    candidate, severity = chosen
    doubt = _contradiction(candidate, window, facts, limits)
    if doubt is not None:
        return doubt, ranked
    if candidate.removable is None:
        severity = "warn"  # how much is at stake is not known
    verdict = Verdict(
        kind=candidate.kind,
        severity=severity,
        share=candidate.share if candidate.removable is not None else None,
        headline=_headline(candidate, severity, ranked, window, limits),
        rank=candidate.rank,
        phase=candidate.phase,
        gain_bound=candidate.gain_bound,
        evidence=evidence.sentences(candidate, window, facts, limits),
        advice=advice.suggestions(candidate, window, facts, limits),
    )
    return verdict, ranked


def _is_jitter(candidate: Candidate, window: Window, held: Held | None, limits: Thresholds) -> bool:
    """Whether ranks take turns at being a little slower, as they always do: not worth a note."""
    if candidate.kind != "STRAGGLER" or candidate.rank is not None or window.excess.group:
        return False
    stands = held is not None and held.is_same("STRAGGLER", None)
    return candidate.share < (limits.leave_warn if stands else limits.warn)


def _headline(
    candidate: Candidate,
    severity: str,
    ranked: tuple[Candidate, ...],
    window: Window,
    limits: Thresholds,
) -> str:
    share = words.percent(candidate.share)
    gain = "" if candidate.gain_bound is None else f": up to {words.times(candidate.gain_bound)}"
    text = {
        "DATA": f"Waiting for data {share} of each step{gain} faster with a perfect loader",
        "COMM": f"Waiting for gradient communication {share} of each step{gain} faster "
        "if all of it were hidden",
        "STRAGGLER": _straggler_headline(candidate, window, share, gain, limits),
        "LAUNCH": _launch_headline(candidate, share, gain),
    }[candidate.kind]
    if severity == "note":
        text = "Almost healthy. " + text
    ties = [
        f"{words.candidate_name(c.kind)} {words.percent(c.share)}"
        for c in ranked
        if c is not candidate and c.share > limits.tie * candidate.share and c.share >= limits.note
    ]
    return text + (f"; about as much: {', '.join(ties)}" if ties else "")


def _straggler_headline(
    candidate: Candidate, window: Window, share: str, gain: str, limits: Thresholds
) -> str:
    doing = words.doing(candidate.phase or "other")
    group = window.excess.group
    if len(group) > 1:
        named = words.capital(words.ranks(group))
        return (
            f"{named} hold the others up {share} of each step, {doing}{gain} faster if they kept up"
        )
    if candidate.rank is not None:
        slow = f"Rank {candidate.rank} holds the others up {share} of each step, {doing}"
        return f"{slow}{gain} faster if it kept up"
    return (
        f"A different rank each step holds the others up, {share} of each step, {doing}"
        f"{gain} faster if the work were balanced"
    )


def _launch_headline(candidate: Candidate, share: str, gain: str) -> str:
    whose = "The host" if candidate.rank is None else f"The host of rank {candidate.rank}"
    if candidate.removable is None:
        return f"{whose} cannot issue kernels as fast as the GPU executes them"
    return (
        f"{whose} cannot issue kernels fast enough: the GPU starves {share} of each step"
        f"{gain} faster with no launch cost"
    )


def _unexplained(window: Window, limits: Thresholds) -> tuple[float, Verdict] | None:
    """An excess that is a straggler's or launch cost, but lag does not tell which."""
    parts = window.excess.parts.unknown_us
    share = sum(parts.values()) / window.step_us if window.step_us else 0.0
    if share < limits.warn:
        return None
    rank = window.excess.rank
    phase = max(parts, key=lambda name: parts[name])
    who = "the slowest rank" if rank is None else f"rank {rank}"
    return share, undecided(
        f"{words.capital(who)} takes {words.percent(share)} of each step longer than the others, "
        f"{words.doing(phase)}, by its GPU or by its host",
        "how far its GPU runs behind its host is not known well enough to tell which",
    )


def _partly_unknown(window: Window, ranked: tuple[Candidate, ...], limits: Thresholds) -> Verdict:
    """Phases that the probe cannot tell: what ranks do cannot be compared without them."""
    missing = ", ".join(sorted(window.unknown)).replace("_", " ")
    known = [c for c in ranked if c.share >= limits.note and c.phase not in window.unknown]
    return undecided(
        f"The probe cannot tell what part of the step is: {missing}",
        *(
            f"{words.candidate_name(c.kind)} seems to be {words.percent(c.share)}"
            for c in known[:2]
        ),
    )


def _contradiction(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> Verdict | None:
    """Evidence that speaks against the candidate with the headline."""
    if candidate.kind == "LAUNCH":
        return _busy_all_the_time(candidate, window, facts, limits)
    if candidate.kind == "DATA" or candidate.phase == "data":
        return _no_stall(window, facts, limits)
    return None


def _busy_all_the_time(
    candidate: Candidate, window: Window, facts: Facts, limits: Thresholds
) -> Verdict | None:
    """Against launch cost: a GPU without idle time. It may wait for its host to read a result."""
    if candidate.rank is None:
        return None  # its share comes from idle time, or from no GPU that tells
    util = facts.of(candidate.rank).util_percent
    if util is None or util < limits.util_busy_percent:
        return None
    return undecided(
        f"Rank {candidate.rank} takes {words.percent(candidate.share)} of each step longer than "
        "the others, by its GPU or by its host",
        evidence.lag(window, f"the GPU of rank {candidate.rank}"),
        evidence.utilization(facts, candidate.rank),
    )


def _no_stall(window: Window, facts: Facts, limits: Thresholds) -> Verdict | None:
    """Against a data stall: a full queue, or a host that did not wait."""
    worst = max(window.ranks, key=lambda rank: rank.phases_us["data"])
    stall = f"the GPU clock shows {words.ms(worst.phases_us['data'])} a step of waiting for data"
    host = worst.data_host_us
    if host is not None and host < limits.host_wait_part * worst.phases_us["data"]:
        return undecided(
            f"Rank {worst.rank} seems to wait for data, but its loader answers at once",
            stall,
            f"the host spends {words.ms(host)} a step in next()",
        )
    known = facts.of(worst.rank)
    if known.ready is not None and known.queue and known.ready >= limits.queue_full * known.queue:
        return undecided(
            f"Rank {worst.rank} seems to wait for data, but batches are ready",
            stall,
            evidence.queue(facts, worst.rank),
        )
    return None


def _nothing_found(window: Window, facts: Facts, held: Held | None, limits: Thresholds) -> Verdict:
    """No candidate is large enough: healthy, if the evidence says so."""
    phases = window.frontier_us
    compute = window.share("forward") + window.share("backward") + window.share("optimizer")
    where = (
        f"of a {words.ms(window.step_us)} step: forward {words.ms(phases['forward'])}, "
        f"backward {words.ms(phases['backward'])}, optimizer {words.ms(phases['optimizer'])}"
    )
    if compute < limits.compute_dominates:
        rest = max(set(phases) - {"forward", "backward", "optimizer"}, key=phases.__getitem__)
        return undecided(
            f"{words.percent(window.share(rest))} of each step passes {words.doing(rest)}",
            where,
            f"{words.ms(phases[rest])} {words.doing(rest)}",
        )
    doubt = _not_gpu_bound(window, facts, held, limits) if window.cuda else None
    if doubt is not None:
        return doubt
    who = "GPUs compute" if window.cuda else "CPUs compute"
    waits = (
        f"waiting for data {words.percent(window.share('data'))}, "
        f"gradient communication {words.percent(window.share('exposed_comm'))} of each step"
    )
    lag = evidence.lag(window, "the slowest rank's GPU" if len(window.ranks) > 1 else "the GPU")
    busy = evidence.utilization(facts, None)
    return Verdict(
        "COMPUTE-BOUND",
        "ok",
        compute,
        f"Healthy: the {who} {words.percent(compute)} of each step",
        evidence=tuple(text for text in (where, waits, lag, busy) if text),
        advice=advice.healthy(window, facts, limits),
    )


def _not_gpu_bound(
    window: Window, facts: Facts, held: Held | None, limits: Thresholds
) -> Verdict | None:
    """Why a run on GPUs cannot be called compute-bound; None when it can."""
    who = "the slowest rank's GPU" if len(window.ranks) > 1 else "the GPU"
    lag = window.critical_lag_us
    busy = evidence.utilization(facts, None)
    if lag is None:
        return undecided(
            f"Nothing is above {words.percent(limits.note)}, but whether the GPUs or "
            "their hosts set the pace is not known",
            busy,
        )
    needed = min(limits.lag_ahead_share * window.step_us, limits.lag_ahead_us)
    if held is not None and held.kind == "COMPUTE-BOUND":
        needed /= limits.lag_held_factor
    if lag < needed:
        return undecided(
            f"Nothing is above {words.percent(limits.note)}, but the GPUs are hardly "
            "behind their hosts",
            evidence.lag(window, who),
            busy,
        )
    utils = [r.util_percent for r in facts.ranks if r.util_percent is not None]
    if utils and min(utils) < limits.util_idle_percent:
        return undecided(
            "The steps look compute-bound, but a GPU is idle half the time",
            busy,
            evidence.lag(window, who),
        )
    return None
