"""Why a run ended: a pure function of what was recorded. No I/O.

torchrun's own answer is not used: its exit status is always 1, and the root cause that it prints is
wrong in half of the close races, because it compares whole seconds. What counts are the records
that each rank made itself, in nanoseconds, and the moments at which the supervisor saw ranks go.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchtop.launch.oom import OutOfMemory
from torchtop.launch.plain_text import plain
from torchtop.launch.reasons import Reason, of_exception, of_timeout
from torchtop.session.brief import brief

_VICTIM = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|broken pipe|socket closed"
    r"|failed to recv, got 0 bytes|peer closed|remote process exited|ncclRemoteError"
    r"|recvValue failed|sendBytes failed|recvBytes failed",
    re.IGNORECASE,
)
"""What gloo, NCCL and the store say on a rank whose peer has gone."""

_AGENT_KILLED_RANK = re.compile(r"process (\d+) via \S+, forcefully exiting via")
_AGENT_SIGNALLED = re.compile(r"SignalException: Process \d+ got signal: (?:Signals\.)?(\w+)")
_EXIT_CODE = re.compile(r"exitcode\s*: (-?\d+)\)?[^\n]*?\(pid: (\d+)\)")

_DISK_FULL_BYTES = 1 << 20
"""With less than this left, what a script prints cannot be written."""

_MESSAGE_LIMIT = 300


@dataclass(frozen=True)
class RankEvidence:
    """What is known of one rank's end.

    Attributes:
        rank: its number.
        pid: its process.
        exception: its ``exception`` record, or None.
        exit_code: of its ``exit`` record, or None when it could not write one.
        exit_ns: when it wrote that.
        gone_ns: when the supervisor saw it end, or None while it runs.
        status: exit code from waitpid or from torchrun, negative for a signal; None if unknown.
        tail: the last lines of its stderr.
        timeout: the line in which NCCL's watchdog says what timed out, or empty: it comes long
            before the last lines.
    """

    rank: int
    pid: int
    exception: Mapping[str, Any] | None = None
    exit_code: int | None = None
    exit_ns: int | None = None
    gone_ns: int | None = None
    status: int | None = None
    tail: tuple[str, ...] = ()
    timeout: str = ""

    @property
    def code(self) -> int | None:
        """How the process ended. A crash after the script's end outdoes the script's own code."""
        if self.status is not None and (self.status < 0 or not self.exit_code):
            return self.status
        return self.exit_code

    @property
    def failed_ns(self) -> int:
        """When it failed; the end of time when that was not seen."""
        if self.exception is not None:
            return int(self.exception.get("mono_ns") or 0)
        return self.left_ns or 2**63

    @property
    def failed(self) -> bool:
        """Whether it is known to have ended in another way than with status 0."""
        return self.exception is not None or self.code not in (0, None)

    @property
    def left_ns(self) -> int | None:
        """When it ended, by its own record or as the supervisor saw it."""
        return self.exit_ns or self.gone_ns

    @property
    def is_victim(self) -> bool:
        """Whether its failure is what the end of another rank does to a rank."""
        if self.exception is not None:
            text = f"{self.exception.get('type')}: {self.exception.get('message')}"
            return bool(_VICTIM.search(text))
        return self.code == -signal.SIGTERM


@dataclass(frozen=True)
class Stop:
    """A stop that was asked for: why (user, duration or steps) and when."""

    why: str
    mono_ns: int


@dataclass(frozen=True)
class Evidence:
    """All that the supervisor knows when everything has ended.

    Attributes:
        ranks: one for each rank that had started.
        agent_code: torchrun's exit code, negative for a signal; None when it never started.
        agent_gone_ns: when it ended.
        agent_log: the text that it wrote, or its last part.
        agent_tail: the last lines of that.
        stop: the first stop that was asked for, or None.
        launch_error: why torchrun could not be started, or None.
        is_command: whether a command of the user's took torchrun's place.
        memory: what the kernel has killed for want of host memory.
        disk_free_bytes: on the disk of the session; None when that is not known.
    """

    ranks: tuple[RankEvidence, ...] = ()
    agent_code: int | None = None
    agent_gone_ns: int | None = None
    agent_log: str = ""
    agent_tail: tuple[str, ...] = ()
    stop: Stop | None = None
    launch_error: str | None = None
    is_command: bool = False
    memory: OutOfMemory = field(default_factory=OutOfMemory)
    disk_free_bytes: int | None = None


def codes_in(agent_log: str) -> dict[int, int]:
    """The exit codes by pid that torchrun wrote into its log: it alone can wait for its ranks."""
    return {int(pid): int(code) for code, pid in _EXIT_CODE.findall(agent_log)}


def exit_record(evidence: Evidence) -> dict[str, Any]:
    """The fields of the ``exit`` record."""
    if evidence.launch_error is not None:
        return _record("launch_failed", evidence.launch_error, tail=evidence.agent_tail)
    first = _first_failure(evidence)
    stop = evidence.stop
    if first is not None and (stop is None or first.failed_ns < stop.mono_ns):
        return _rank_record(evidence, first)
    if stop is not None:
        limits = {"duration": "time", "steps": "number of steps"}
        if stop.why in limits:
            return _record(stop.why, f"stopped after the {limits[stop.why]} that was asked for")
        return _record("stopped", "stopped by the user")
    if (killer := _agent_signal(evidence)) is not None:
        if killer == "SIGKILL" and evidence.memory.kills:
            what = "the command" if evidence.is_command else "torchrun"
            reason = _out_of_host_memory(evidence, f"{what} was killed")
            return _record(reason.cause, reason.does, name=killer, tail=evidence.agent_tail)
        if evidence.is_command:
            message = f"the command was ended by {killer}"
            code = evidence.agent_code
            return _record("signal", message, code=code, name=killer, tail=evidence.agent_tail)
        message = f"torchrun was ended from outside by {killer}"
        return _record("launcher_killed", message, name=killer, tail=evidence.agent_tail)
    return _without_culprit(evidence)


def _without_culprit(evidence: Evidence) -> dict[str, Any]:
    """Nobody stopped it, and no rank failed by itself."""
    failed = sorted((r for r in evidence.ranks if r.failed), key=lambda r: r.failed_ns)
    left = [r for r in evidence.ranks if not r.failed and r.left_ns is not None]
    leaver = min(left, key=lambda r: r.left_ns or 0, default=None)
    if failed and leaver is not None and (leaver.left_ns or 0) < failed[0].failed_ns:
        message = (
            f"rank {leaver.rank} left early with status 0, "
            f"and rank {failed[0].rank} lost its connection to it"
        )
        tail = leaver.tail or failed[0].tail
        return _record("exit_code", message, rank=leaver.rank, code=0, tail=tail)
    if failed:
        return _rank_record(evidence, failed[0])
    code = evidence.agent_code
    if code == 0:
        count = len(evidence.ranks)
        message = f"all {count} ranks finished" if count > 1 else "finished"
        return _record("completed", message, code=0)
    last = evidence.agent_tail[-1] if evidence.agent_tail else "it wrote nothing"
    if evidence.is_command:
        message = f"the command exited with status {code}: {last}"
        return _record("exit_code", message, code=code, tail=evidence.agent_tail)
    vanished = next((r for r in evidence.ranks if r.code is None and r.gone_ns), None)
    if vanished is not None:
        return _rank_record(evidence, vanished)
    if not evidence.ranks:
        message = f"torchrun ended with status {code} before any rank had started: {last}"
        return _record("launch_failed", message, code=code, tail=evidence.agent_tail)
    message = f"torchrun ended with status {code} although no rank had failed: {last}"
    return _record("exit_code", message, code=code, tail=evidence.agent_tail)


def _first_failure(evidence: Evidence) -> RankEvidence | None:
    """The rank that failed first, and not because of another one's end, or None."""
    killed_by_agent = {int(pid) for pid in _AGENT_KILLED_RANK.findall(evidence.agent_log)}
    # Once torchrun is killed its ranks are killed with it: what they do from then on is no cause.
    until = evidence.agent_gone_ns if _agent_signal(evidence) else None
    own = [
        rank
        for rank in evidence.ranks
        if rank.failed
        and not rank.is_victim
        and not (rank.exception is None and rank.pid in killed_by_agent)
        and (until is None or (rank.exception is not None and rank.failed_ns < until))
    ]
    return min(own, key=lambda rank: rank.failed_ns, default=None)


def _agent_signal(evidence: Evidence) -> str | None:
    """The signal that ended torchrun, by its exit code or by what it says of itself."""
    if evidence.agent_code is not None and evidence.agent_code < 0:
        return signal_name(evidence.agent_code)
    if evidence.agent_code and (found := _AGENT_SIGNALLED.search(evidence.agent_log)):
        number = found.group(1)
        return signal_name(-int(number)) if number.isdigit() else number
    return None


def _rank_record(evidence: Evidence, rank: RankEvidence) -> dict[str, Any]:
    reason = _reason(evidence, rank)
    if reason.cause == "timeout":
        reason = _blaming(evidence, reason)
    code = rank.code
    trace = None
    if rank.exception is not None:
        code = rank.exit_code if rank.exit_code is not None else 1
        trace = plain(str(rank.exception.get("traceback") or "")) or None
    hint = f"; {reason.hint}" if reason.hint else ""
    message = brief(_flat(f"rank {rank.rank} {reason.does}"), _MESSAGE_LIMIT - len(hint))
    return _record(
        reason.cause,
        message + hint,
        rank=rank.rank,
        code=code,
        name=signal_name(code) if code is not None and code < 0 else None,
        traceback=trace,
        tail=rank.tail,
    )


def _reason(evidence: Evidence, rank: RankEvidence) -> Reason:
    code = rank.code
    if rank.exception is not None:
        kind = str(rank.exception.get("type") or "exception")
        reason = of_exception(kind, plain(str(rank.exception.get("message") or "")))
        if reason.by_sigkill and evidence.memory.kills:
            return _out_of_host_memory(evidence, reason.does)
        return reason
    if code is None:
        return Reason("signal", "ended without a word; how is not known")
    if rank.timeout and (timeout := of_timeout(rank.timeout)) is not None:
        return timeout
    if _is_full(evidence) and code in (1, 120):  # 120: Python could not flush its output
        hint = "the disk of the session is full, and its output could not be written"
        return Reason("disk_full", f"exited with status {code}", hint)
    if code >= 0:
        return Reason("exit_code", f"exited with status {code}")
    if code != -signal.SIGKILL:
        return Reason("signal", f"was ended by {signal_name(code)}")
    if evidence.memory.may_have_killed(rank.pid):
        return _out_of_host_memory(evidence, "was killed")
    return Reason("signal", "was killed by SIGKILL, cause unknown")


def _blaming(evidence: Evidence, reason: Reason) -> Reason:
    """A timeout with the rank that was waited for, where all others say that they waited."""
    others = [rank.rank for rank in evidence.ranks if _reason(evidence, rank).cause != "timeout"]
    if len(others) == 1 and reason.hint:
        return replace(reason, hint=f"rank {others[0]} did not join it")
    return reason


def _out_of_host_memory(evidence: Evidence, does: str) -> Reason:
    limit = evidence.memory.limit_bytes
    of = f"; the limit of its control group is {limit / 1e9:.1f} GB" if limit is not None else ""
    return Reason("host_out_of_memory", f"{does}: the host ran out of memory{of}")


def _is_full(evidence: Evidence) -> bool:
    free = evidence.disk_free_bytes
    return free is not None and free < _DISK_FULL_BYTES


def signal_name(code: int) -> str:
    """The name of the signal in a negative exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _record(
    cause: str,
    message: str,
    *,
    rank: int | None = None,
    code: int | None = None,
    name: str | None = None,
    traceback: str | None = None,
    tail: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "cause": cause,
        "rank": rank,
        "code": code,
        "signal": name,
        "message": brief(_flat(message), _MESSAGE_LIMIT),
        "traceback": traceback,
        "log_tail": list(tail),
    }


def _flat(text: str) -> str:
    return plain(text).replace("\n", " ")
