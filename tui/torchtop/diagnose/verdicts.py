"""From a window to a verdict: what is chosen, what speaks against it, and what stands beside it."""

from __future__ import annotations

from typing import NamedTuple

from . import asleep, findings, words
from .candidate import Candidate
from .candidates import candidates
from .copies import batches_per_step
from .facts import Facts
from .findings import Keys
from .hysteresis import Held, choose
from .links import traffic_bytes
from .pauses import NO_PAUSES, Pauses
from .thresholds import Thresholds
from .told import data, healthy, tell
from .told.case import Case, lag, slowest_gpu, utilization
from .verdict import Verdict, undecided
from .window import Window


class Judged(NamedTuple):
    """What is to be said of a window."""

    verdict: Verdict
    ranked: tuple[Candidate, ...]
    """All candidates, largest first."""
    findings: tuple[Verdict, ...] = ()
    """What the devices say beside."""


def judge(
    window: Window,
    facts: Facts,
    held: Held | None,
    limits: Thresholds,
    pauses: Pauses = NO_PAUSES,
    standing: Keys = (),
) -> Judged:
    """Decide on a window.

    Args:
        window: at least `window_steps` steps and `window_s` seconds, without warm-up.
        facts: what is known beside the steps.
        held: the verdict that stands, or None.
        limits: thresholds.
        pauses: what recurs, and is no part of the window.
        standing: the findings that stand.
    """
    if facts.alone:
        window = window.apart()
    ranked = candidates(window, facts, held, limits, pauses)
    verdict = _decide(window, facts, held, limits, pauses, ranked)
    stands = [*standing, (held.kind, held.rank)] if held is not None else standing
    scene = findings.Scene(window, facts, stands, limits)
    verdict, beside = findings.settle(verdict, findings.find(scene), scene)
    return Judged(verdict, ranked, beside)


def _decide(
    window: Window,
    facts: Facts,
    held: Held | None,
    limits: Thresholds,
    pauses: Pauses,
    ranked: tuple[Candidate, ...],
) -> Verdict:
    jitter = [c for c in ranked if _is_jitter(c, window, facts, held, limits)]
    chosen = choose([c for c in ranked if c not in jitter], held, limits)
    if chosen is not None and any(chosen[0].share < limits.tie * c.share for c in jitter):
        chosen = choose(ranked, held, limits)  # where something is told, then what is larger
    if window.unknown and (chosen is None or len(window.ranks) > 1):
        return _partly_unknown(window, ranked, limits)
    untold = window.untold_us / window.step_us if window.step_us else 0.0
    if untold >= limits.warn and (chosen is None or untold > chosen[0].share):
        return _fetched_elsewhere(window, untold)
    unseen = unseen_share(window, pauses)
    if unseen >= limits.warn and (chosen is None or unseen > chosen[0].share):
        return _too_rare(window, unseen)
    unexplained = _unexplained(window, limits)
    if unexplained and (chosen is None or unexplained[0] > chosen[0].share):
        return unexplained[1]
    if chosen is None:
        return _nothing_found(window, facts, held, limits)
    candidate, severity = chosen
    slept = asleep.beside(window, facts, candidate, limits)
    if slept is not None:
        return slept
    case = Case(candidate, window, facts, limits, pauses)
    doubt = _contradiction(case)
    if doubt is not None:
        return doubt
    if not candidate.sure:
        severity = "warn"  # how much is at stake is not known
    return Verdict(
        kind=candidate.kind,
        severity=severity,
        share=candidate.share if candidate.sure else None,
        headline=tell.headline(case, severity, ranked),
        rank=candidate.rank,
        phase=candidate.phase,
        gain_bound=candidate.gain_bound,
        evidence=tell.evidence(case),
        advice=tell.advice(case),
        cause=candidate.cause,
    )


def _is_jitter(
    candidate: Candidate, window: Window, facts: Facts, held: Held | None, limits: Thresholds
) -> bool:
    """Whether ranks wait a little for one another, as they always do: not worth a note.

    They take turns at being slower. And where they compute on the CPU, and all cores are busy, one
    that does not get its turn holds the others up.
    """
    if candidate.kind not in ("COMM", "STRAGGLER"):
        return False
    turns = candidate.kind == "STRAGGLER" and candidate.rank is None and not window.excess.group
    compete = _compete(window, facts, limits)
    if not turns and not compete:
        return False
    if compete and candidate.kind == "COMM":
        needed_us = (traffic_bytes(window, facts) or 0.0) / limits.gloo_gb_s / 1000
        if needed_us < limits.explains * window.frontier_us["exposed_comm"]:
            return candidate.share < limits.critical
    stands = held is not None and held.is_same(candidate.kind, candidate.rank)
    enter = limits.compete if compete else limits.warn
    return candidate.share < (limits.leave_warn if stands else enter)


def _compete(window: Window, facts: Facts, limits: Thresholds) -> bool:
    """Whether ranks compute on the CPU and all cores of a host are busy."""
    busy = (host.is_busy(limits.host_busy_percent) for host in facts.hosts.values())
    return not window.cuda and any(busy)


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
        words.headline(
            f"{words.capital(who)} is slower by {words.percent(share)}, {words.place(phase)}: "
            "by its GPU or its host?"
        ),
        "how far its GPU runs behind its host is not known well enough to tell which",
    )


def unseen_share(window: Window, pauses: Pauses) -> float:
    """Share (0..1) of the time that passes in long steps that nobody has measured or told of."""
    whole_us = window.step_us + window.unseen_us
    return window.unseen_us / whole_us - pauses.share if whole_us else 0.0


def _too_rare(window: Window, share: float) -> Verdict:
    """Long steps between the measured ones: that there are some is all that is known."""
    whole = words.ms(window.step_us + window.unseen_us)
    return undecided(
        f"{words.percent(share)} of the time is in rare long steps that were not measured",
        f"a step takes {whole} on average, and the measured ones {words.ms(window.step_us)}",
        advice=(
            "look for what the script does every so many steps: logging, saving, evaluating, "
            "beginning an epoch",
        ),
    )


def _fetched_elsewhere(window: Window, share: float) -> Verdict:
    """Batches that another thread fetches: that it is waited for, or not, does not show."""
    return undecided(
        f"{words.percent(share)} of each step is unknown: another thread fetches the batches",
        f"{words.ms(window.untold_us)} a step are forward, or a wait for that thread",
        advice=(
            "to find out, time the call that takes the next batch from that thread, or iterate "
            "over the DataLoader itself for a run",
        ),
    )


def _partly_unknown(window: Window, ranked: tuple[Candidate, ...], limits: Thresholds) -> Verdict:
    """Phases that the probe cannot tell: what ranks do cannot be compared without them."""
    missing = [phase.replace("_", " ") for phase in sorted(window.unknown)]
    told = "The probe cannot tell what part of the step is: "
    known = [c for c in ranked if c.share >= limits.note and c.phase not in window.unknown]
    return undecided(
        words.headline(
            told + ", ".join(missing), f"{told}{missing[0]} and {len(missing) - 1} more"
        ),
        *(
            f"{words.candidate_name(c.kind)} seems to be {words.percent(c.share)}"
            for c in known[:2]
        ),
    )


def _contradiction(case: Case) -> Verdict | None:
    """Evidence that speaks against the candidate with the headline."""
    if case.candidate.kind == "LAUNCH":
        return _busy_all_the_time(case)
    if case.candidate.kind == "DATA" or case.candidate.phase == "data":
        return _no_stall(case)
    return None


def _busy_all_the_time(case: Case) -> Verdict | None:
    """Against launch cost: a GPU without idle time. It may wait for its host to read a result."""
    rank = case.candidate.rank
    if rank is None:
        return None  # its share comes from idle time, or from no GPU that tells
    util = case.facts.of(rank).util_percent
    if util is None or util < case.limits.util_busy_percent:
        return None
    return undecided(
        words.headline(f"Rank {rank} is slower by {case.share}: by its GPU or its host?"),
        lag(case.window, slowest_gpu(case.window, rank)),
        utilization(case.facts, rank),
    )


def _no_stall(case: Case) -> Verdict | None:
    """Against a data stall: a host that did not wait."""
    worst = case.window.ranks[data.worst(case)]
    stall, host = worst.phases_us["data"], worst.data_host_us
    if host is None or host >= case.limits.host_wait_part * stall:
        return None
    return undecided(
        f"Rank {worst.rank} seems to wait for data, but its loader answers at once",
        f"the GPU clock shows {words.ms(stall)} a step of waiting for data",
        f"the host spends {words.ms(host)} a step in next()",
        data.queue(case, worst.rank),
    )


def _nothing_found(window: Window, facts: Facts, held: Held | None, limits: Thresholds) -> Verdict:
    """No candidate is large enough: healthy, if the evidence says so."""
    compute = window.share("forward") + window.share("backward") + window.share("optimizer")
    if compute < limits.compute_dominates:
        return _elsewhere(window, facts)
    if window.cuda:
        doubt = _not_gpu_bound(window, facts, held, limits)
    else:
        doubt = asleep.instead_of_healthy(facts, limits)
    if doubt is not None:
        return doubt
    return Verdict(
        "COMPUTE-BOUND",
        "ok",
        compute,
        healthy.headline(window, compute),
        evidence=healthy.evidence(window, facts, limits),
        advice=healthy.advice(window, facts, limits),
    )


def _elsewhere(window: Window, facts: Facts) -> Verdict:
    """Time in a part of the step that no kind of bottleneck stands for."""
    phases = window.frontier_us
    rest = max(set(phases) - {"forward", "backward", "optimizer"}, key=phases.__getitem__)
    doing = words.doing(rest)
    if rest == "other" and any((batches_per_step(r, facts) or 1) > 1 for r in window.ranks):
        doing = "after the optimizer or between the batches of a step"
    hosts = [rank.phases_us[rest] for rank in window.ranks]
    return undecided(
        f"{words.percent(window.share(rest))} of each step passes {doing}",
        healthy.where(window),
        f"{words.ms(phases[rest])} {doing}"
        + (f"; by rank {words.ms(min(hosts))} to {words.ms(max(hosts))}" if hosts[1:] else ""),
        advice=(
            f"look for what the script does {doing} in each step: logging, metrics, evaluation",
        )
        if rest in ("pre_optimizer", "other")
        else (),
    )


def _not_gpu_bound(
    window: Window, facts: Facts, held: Held | None, limits: Thresholds
) -> Verdict | None:
    """Why a run on GPUs cannot be called compute-bound; None when it can."""
    behind = window.critical_lag_us
    busy = utilization(facts)
    if behind is None:
        return undecided(
            f"Nothing is above {words.percent(limits.note)}; whether GPUs or hosts set the pace "
            "is not known",
            busy,
        )
    needed = min(limits.lag_ahead_share * window.step_us, limits.lag_ahead_us)
    if held is not None and "COMPUTE-BOUND" in (held.kind, held.of):
        needed /= limits.lag_held_factor
    if behind < needed:
        return undecided(
            f"Nothing is above {words.percent(limits.note)}, but the GPUs are hardly "
            "behind their hosts",
            lag(window, slowest_gpu(window)),
            busy,
        )
    least = facts.least_busy()
    if least is not None and (least.util_percent or 0.0) < limits.util_idle_percent:
        return undecided(
            "The steps look compute-bound, but a GPU is idle half the time",
            busy,
            lag(window, slowest_gpu(window)),
        )
    return None
