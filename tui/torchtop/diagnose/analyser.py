"""Records in, analysis out. No I/O and no clock: the same records give the same verdicts."""

from __future__ import annotations

import math
from collections import deque
from pathlib import PurePosixPath
from typing import Any

from ..session.launches import launch_of
from . import pauses, report, script, words
from .ages import marker_age_s
from .align import Aligner
from .candidate import Candidate
from .context import Learnt, gather
from .devices import NodeState
from .endings import Endings
from .frontier import FrontierStep
from .liveness import nothing_to_judge
from .pace import Paces
from .pauses import NO_PAUSES
from .ranks import Pause, RankState, train_alone
from .rollup import Rollup
from .rows import integer, parse_steps, world_size
from .sampled import with_skipped
from .select import is_startup, select, usual_work_us
from .standing import Standing, stood
from .thresholds import DEFAULT, Thresholds
from .unseen import Unseen
from .verdict import Verdict, undecided
from .verdicts import Judged, judge
from .window import Window, summarise

_STEPS = 4096
"""Steps kept: three minutes at the 20 a second that a probe records at most."""
_DRAWN = 200
"""Steps in ``recent_step_ms`` at most."""


class Analyser:
    """Analyses one session as its records arrive.

    Args:
        thresholds: limits of the diagnosis.
        world_size: number of ranks; from the ranks' headers when None.

    Attributes:
        malformed: records that could not be used.
    """

    def __init__(self, thresholds: Thresholds = DEFAULT, world_size: int | None = None) -> None:
        self.malformed = 0
        self._limits = thresholds
        self._fixed_world_size = world_size
        self._world_size = world_size
        self._attempt = -1
        self._launch = 0
        self._ended: list[dict[str, Any]] = []
        self._ranks: dict[int, RankState] = {}
        self._nodes: dict[str, NodeState] = {}
        self._aligner: Aligner | None = None
        self._steps: deque[FrontierStep] = deque(maxlen=_STEPS)
        self._unrolled: list[FrontierStep] = []
        self._fresh: deque[int] = deque(maxlen=_DRAWN)
        self._unseen = Unseen()
        self._endings = Endings()
        self._hung: Verdict | None = None
        self._paths: dict[str, PurePosixPath] = {}
        self._rollup = Rollup()
        self._standing = Standing()
        self._pauses = NO_PAUSES
        self._ready_ns: int | None = None
        self._loader_period_us: dict[int, float] = {}
        self._paces = Paces()
        self._analysed_ns: int | None = None
        self._first_ns: int | None = None

    # ------------------------------------------------------------------------------ records in
    def feed(self, source: str, record: dict[str, Any]) -> None:
        """Take in one record; unknown kinds are ignored, malformed records counted.

        Args:
            source: the file's path within the session directory, such as
                "ranks/0-0-123.jsonl" or "nodes/host/devices.jsonl".
            record: the record.
        """
        path = self._paths.get(source)
        if path is None:
            path = self._paths[source] = PurePosixPath(source)
        try:
            if self._first_ns is None:
                self._first_ns = integer(record.get("mono_ns"))
            if path.parts[0] == "ranks" and path.name.endswith(".process.jsonl"):
                rank, attempt = (int(part) for part in path.name.split("-")[:2])
                self._unseen.take(rank, attempt, record)
                self._endings.take_process(path.name, record)
            elif path.parts[0] == "ranks":
                self._feed_rank(source, path.name, record)
            elif path.parts[0] == "nodes" and path.name == "devices.jsonl":
                self._feed_node(path.parts[1], record)
            elif path.parts[0] == "nodes" and path.name == "events.jsonl":
                self._endings.take_event(record)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self.malformed += 1

    def _feed_node(self, name: str, record: dict[str, Any]) -> None:
        node = self._nodes.setdefault(name, NodeState())
        node.take(record)
        if record.get("kind") == "tick":
            trains = bool(self._steps) and self._steps[-1].step >= self._limits.warmup_steps
            self._rollup.add_tick(node, record, trains)

    def _feed_rank(self, source: str, name: str, record: dict[str, Any]) -> None:
        rank, attempt = (int(part) for part in name.split("-")[:2])
        kind = record.get("kind")
        if kind == "header":
            self._enter(source, rank, attempt, record)
            return
        state = self._ranks.get(rank)
        if state is None or state.source != source:
            return  # an older attempt, or a file whose header was not seen
        if kind == "steps":
            self._take_steps(state, record)
        elif kind == "totals":
            state.take_totals(record)
            self._rollup.add_totals(rank, state.totals[-1])
            self._count_own(state, record)
        elif kind == "beat":
            state.take_beat(record)
        elif kind == "facts":
            state.take_facts(record)
            if self._aligner is not None and "broadcast_buffers" in record:
                self._aligner.broadcast = record["broadcast_buffers"] is True
        elif kind == "probe":
            state.take_probe(record)
        elif kind in ("memory", "inspected", "not_finite"):
            state.take_aside(record)
        elif kind == "pause":
            state.take_pause(record)
        elif kind == "scalars":
            values = state.take_scalars(record)
            if rank == min(self._ranks):
                self._rollup.add_scalars(values)

    def _count_own(self, state: RankState, totals: dict[str, Any]) -> None:
        if state.rank == min(self._ranks) and state.own and "own_us" in totals:
            self._rollup.add_own(state.own[-1].steps, state.own[-1].sums_us)

    def _enter(self, source: str, rank: int, attempt: int, header: dict[str, Any]) -> None:
        """A rank's file begins: the newest attempt of the newest start counts."""
        known = self._ranks.get(rank)
        if attempt < self._attempt or (known is not None and known.source == source):
            return
        if attempt > self._attempt:
            self._begin(attempt, header)
        elif known is not None:
            if _started_ns(header) <= _started_ns(known.header):
                return
            if self._aligner is not None:
                self._aligner.forget(rank)
        if rank >= (self._world_size or 1):
            raise ValueError(f"rank {rank} of {self._world_size}")
        self._ranks[rank] = RankState(rank, attempt, source, header)

    def _begin(self, attempt: int, header: dict[str, Any]) -> None:
        self._attempt = attempt
        self._roll_up()
        if launch_of(header) != self._launch:
            self._end_launch(launch_of(header), integer(header.get("mono_ns")) or 0)
        told = world_size(header.get("world_size"))
        self._world_size = self._fixed_world_size or told or 1
        self._aligner = Aligner(self._world_size)
        self._ranks.clear()
        self._rollup.restart()
        self._steps.clear()
        self._standing = Standing()
        self._hung = None
        self._pauses = NO_PAUSES
        self._ready_ns = None
        self._loader_period_us.clear()
        self._paces = Paces()

    def _end_launch(self, launch: int, begun_ns: int) -> None:
        """Another launch of a command begins: of the one before nothing goes on."""
        minute = self.minute(begun_ns if self._analysed_ns is None else self._analysed_ns)
        if minute is not None:
            self._ended.append(minute)
        self._launch = launch
        self._rollup.trains_anew()
        self._fresh.clear()

    def _take_steps(self, state: RankState, record: dict[str, Any]) -> None:
        rows = parse_steps(record)
        if not rows or self._aligner is None:
            return
        state.last_step = max(state.last_step, rows[-1].step)
        for step in self._aligner.add(state.rank, rows):
            self._steps.append(step)
            self._paces.learn(step)
            self._unrolled.append(step)
            self._fresh.append(step.step_us)
        if len(self._unrolled) >= _STEPS:
            self._roll_up()

    # ----------------------------------------------------------------------------- analysis out
    def analyse(self, now_ns: int) -> dict[str, Any]:
        """The fields of an ``analysis`` record, but for kind, seq and mono_ns.

        Args:
            now_ns: CLOCK_MONOTONIC of the host of rank 0.
        """
        kept = list(self._steps)
        apart = train_alone(self._ranks)
        self._pauses = pauses.find(kept, self._told_pauses(), self._limits, apart=apart)
        steps, rare, recurring, ready = select(kept, self._limits, self._pauses.steps)
        window = summarise(steps, self._cuda, self._limits, rare, recurring) if steps else None
        window = with_skipped(window, steps, self._limits) if window else None
        judged = self._judge(now_ns, window, steps, ready)
        ready = ready or judged.verdict.kind == "HUNG"  # one that waits for no window
        judged = judged._replace(findings=(*judged.findings, *script.not_finite(self._ranks)))
        told, last = self._conclude(now_ns, judged, window, ready), self._last_step()
        fresh = [report.millis(us) for us in self._fresh]
        self._fresh.clear()
        means = {m.rank: m for m in window.ranks} if window else {}
        complete = len(self._ranks) == self._world_size
        return {
            "step": last,
            "steps": 0 if last is None else last + 1,
            "window": report.window_fields(window),
            "warming_up": not ready,
            "step_ms": report.step_ms(window),
            "throughput": report.throughput(self._ranks, complete, self._limits.warmup_steps),
            "phases": report.phases(window),
            "ranks": [
                report.rank_fields(state, means.get(rank), marker_age_s(self._ranks, state, now_ns))
                for rank, state in sorted(self._ranks.items())
            ],
            "recent_step_ms": fresh,
            "scalars": report.scalars(self._ranks),
            "progress": report.progress(
                last, self._total_steps(), window.step_us if window else None
            )
            | script.epochs(self._ranks),
            "own_phases": script.own_phases(self._ranks),
            "first_attempt": self._launch,
            "probe": report.probe(self._ranks, self._unseen.reasons),
            **told,
        }

    def _conclude(
        self, now_ns: int, judged: Judged, window: Window | None, ready: bool
    ) -> dict[str, Any]:
        """The verdict and what is beside it, with the time for which they stand."""
        last, standing = self._last_step(), self._standing
        first_step = window.from_step if window is not None else last
        held = standing.hold(now_ns, judged.verdict, first_step)
        standing.keep(now_ns, judged.findings, first_step)
        between = 0.0  # warming up is no verdict: one that stands for no time at all
        if self._analysed_ns is not None and ready:
            between = (now_ns - self._analysed_ns) / 1e9
        self._analysed_ns = now_ns
        self._rollup.add_verdict(judged.verdict, (held.from_step, last), between)
        findings = []
        for finding in judged.findings:
            began = standing.findings[finding.kind, finding.rank]
            self._rollup.add_finding(finding, (began.from_step, last), between)
            findings.append(stood(finding, began, now_ns, last))
        return {
            "verdict": stood(judged.verdict, held, now_ns, last),
            "findings": findings,
            "candidates": [_candidate_fields(candidate) for candidate in judged.ranked],
        }

    def minute(self, now_ns: int) -> dict[str, Any] | None:
        """The fields of a ``minute`` record of what happened since the last call.

        Returns:
            None when nothing happened.
        """
        self._roll_up()
        fields = self._rollup.close(now_ns, self._first_ns)
        return None if fields is None else fields | {"first_attempt": self._launch}

    def ended(self) -> list[dict[str, Any]]:
        """The fields of ``minute`` records of launches that another one has followed; each once.

        They come before that of `minute`.
        """
        told, self._ended = self._ended, []
        return told

    # ---------------------------------------------------------------------------------- verdict
    def _judge(
        self, now_ns: int, window: Window | None, steps: list[FrontierStep], ready: bool
    ) -> Judged:
        ended = len(self._endings.of(self._ranks)) == len(self._ranks)
        if self._hung is not None and ended and not ready:
            return Judged(self._hung, ())  # a run that hung to its end, before any other verdict
        nothing = nothing_to_judge(
            self._ranks,
            self._nodes,
            self._world_size,
            window,
            steps,
            now_ns=now_ns,
            limits=self._limits,
            unseen=self._unseen,
            endings=self._endings,
        )
        self._hung = nothing if nothing is not None and nothing.kind == "HUNG" else None
        if nothing is not None:
            return Judged(nothing, ())
        if window is None or not ready:
            return Judged(self._warming_up(window), ())
        self._learn_loader_periods(window)
        self._ready_ns = now_ns if self._ready_ns is None else self._ready_ns
        learnt = Learnt(self._loader_period_us, self._paces)
        facts = gather(self._ranks, self._nodes, steps, learnt, self._ready_ns, self._limits)
        standing = self._standing
        return judge(
            window, facts, standing.held, self._limits, self._pauses, standing.findings.keys()
        )

    def _warming_up(self, window: Window | None) -> Verdict:
        """What is missing until the first verdict."""
        limits = self._limits
        need = f"{limits.window_steps} steps and {limits.window_s:.0f} s after warm-up"
        after = f"a verdict needs {need}: the first {limits.warmup_steps} steps are left out"
        if window is None or window.from_step < limits.warmup_steps:
            done = 0 if window is None else window.to_step
            left = max(1, limits.warmup_steps - done)
            return undecided(f"Warming up: {_steps(left)} to go until measuring begins", after)
        steps = max(0, limits.window_steps - window.recorded)
        seconds = max(0, math.ceil(limits.window_s - window.seconds))
        missing = [_steps(steps)] if steps else []
        missing += [f"{max(1, seconds)} s"] if seconds or not steps else []
        return undecided(
            f"Measuring: {words.a_list(missing)} more until the first verdict",
            after,
        )

    def _learn_loader_periods(self, window: Window) -> None:
        """Remember at which step time each rank's loader could not keep up."""
        for rank in window.ranks:
            stalls = rank.phases_us["data"] >= self._limits.loader_share * window.step_us
            known = self._loader_period_us.get(rank.rank)
            if stalls or (known is not None and window.step_us < known):
                self._loader_period_us[rank.rank] = window.step_us

    # ------------------------------------------------------------------------------------ parts
    @property
    def _cuda(self) -> bool:
        return any(state.cuda for state in self._ranks.values())

    def _roll_up(self) -> None:
        usual = usual_work_us(list(self._unrolled), self._limits)
        for step in self._unrolled:
            self._rollup.add_step(step, is_startup(step, usual, self._limits))
        self._unrolled.clear()

    def _told_pauses(self) -> dict[int, deque[Pause]]:
        """The pauses of the ranks whose clock is that of the lowest rank."""
        boot = self._ranks[min(self._ranks)].header.get("boot_id") if self._ranks else None
        same = [s for s in self._ranks.values() if s.header.get("boot_id") == boot]
        return {state.rank: state.pauses for state in same}

    def _last_step(self) -> int | None:
        """The last step that all ranks finished."""
        if not self._ranks or len(self._ranks) < (self._world_size or 1):
            return None
        last = min(state.last_step for state in self._ranks.values())
        return last if last >= 0 else None

    def _total_steps(self) -> int | None:
        for state in self._ranks.values():
            total = integer(state.facts.get("script", {}).get("total_steps"))
            if total is not None:
                return total
        return None


def _steps(count: int) -> str:
    return "one step" if count == 1 else f"{count} steps"


def _started_ns(header: dict[str, Any]) -> int:
    return integer(header.get("mono_ns")) or 0


def _candidate_fields(candidate: Candidate) -> dict[str, Any]:
    return {
        "kind": candidate.kind,
        "share": round(candidate.share, 4),
        "rank": candidate.rank,
        "phase": candidate.phase,
    }
