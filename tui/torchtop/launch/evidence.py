"""Gathering what `exit_cause` judges, from the session directory and the watched ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

from torchtop.launch.exit_cause import Evidence, RankEvidence, Stop, codes_in
from torchtop.launch.oom import OutOfMemory
from torchtop.launch.plain_text import last_lines, plain
from torchtop.launch.ranks import WatchedRank
from torchtop.session.paths import SessionPaths

_TAIL_LINES = 20
_TAIL_BYTES = 256 << 10
"""After its watchdog's word NCCL writes pages of C++ frames."""

_WATCHDOG = b"Watchdog caught collective operation timeout"
_AGENT_LOG_BYTES = 1 << 20


def agent_log(paths: SessionPaths, is_command: bool) -> Path:
    """The file that takes torchrun's own output, or all of a command's.

    A command's lies where a rank's would: it may be that of the only one.
    """
    name = "command/attempt_0/0/stdout.log" if is_command else "torchrun.log"
    return paths.logs / name


def gather(
    paths: SessionPaths,
    ranks: list[WatchedRank],
    *,
    agent_code: int | None,
    agent_gone_ns: int | None,
    stop: Stop | None,
    launch_error: str | None,
    is_command: bool,
    memory: OutOfMemory,
) -> Evidence:
    """All the evidence of an ended run."""
    log = agent_log(paths, is_command)
    text = _end_of(log, _AGENT_LOG_BYTES).decode("utf-8", "replace")
    codes = codes_in(text)
    if is_command:
        ranks = _last_launch(ranks)
    tail = _agent_tail(paths, log, bool(ranks))
    shared = log if is_command else None
    return Evidence(
        ranks=tuple(_rank_evidence(paths, rank, codes, agent_code, shared) for rank in ranks),
        agent_code=agent_code,
        agent_gone_ns=agent_gone_ns,
        agent_log=text,
        agent_tail=tuple(tail),
        stop=stop,
        launch_error=launch_error,
        is_command=is_command,
        memory=memory,
        disk_free_bytes=_disk_free_bytes(paths),
    )


def _last_launch(ranks: list[WatchedRank]) -> list[WatchedRank]:
    """Of all that a command has started, the ranks that count for how it ended."""
    latest = max(ranks, key=_started_ns, default=None)
    if latest is None:
        return []
    launch = latest.header.get("launch")
    of_it = sorted((r for r in ranks if r.header.get("launch") == launch), key=_started_ns)
    return list({rank.rank: rank for rank in of_it}.values())


def _started_ns(rank: WatchedRank) -> int:
    return int(rank.header.get("mono_ns") or 0)


def _rank_evidence(
    paths: SessionPaths,
    rank: WatchedRank,
    codes: dict[int, int],
    agent_code: int | None,
    shared: Path | None,
) -> RankEvidence:
    """What is known of one rank; `shared` takes its output where it has no log of its own."""
    status = rank.status if rank.status is not None else codes.get(rank.pid)
    if status is None and agent_code == 0:
        status = 0
    code = (rank.exit or {}).get("code")
    stderr = _stderr_of(paths, rank, shared)
    return RankEvidence(
        rank=rank.rank,
        pid=rank.pid,
        exception=rank.exception,
        exit_code=code if isinstance(code, int) else None,
        exit_ns=(rank.exit or {}).get("mono_ns"),
        gone_ns=rank.gone_ns,
        status=status,
        tail=tuple(last_lines(stderr, _TAIL_LINES)),
        timeout=next((_text(line) for line in stderr.split(b"\n") if _WATCHDOG in line), ""),
    )


def _text(line: bytes) -> str:
    return plain(line.decode("utf-8", "replace"))


def _disk_free_bytes(paths: SessionPaths) -> int | None:
    try:
        return shutil.disk_usage(paths.root).free
    except OSError:
        return None


def _stderr_of(paths: SessionPaths, rank: WatchedRank, shared: Path | None) -> bytes:
    local, attempt = rank.header.get("local_rank"), rank.header.get("attempt") or 0
    for path in paths.logs.glob(f"*/attempt_{attempt}/{local}/stderr.log"):
        return _end_of(path, _TAIL_BYTES)
    return _end_of(shared, _TAIL_BYTES) if shared is not None else b""


def _agent_tail(paths: SessionPaths, log: Path, ranks_started: bool) -> list[str]:
    """What explains a failed launch: a rank's last words when no rank got as far as a record."""
    if not ranks_started:
        for path in sorted(paths.logs.glob("*/attempt_*/*/stderr.log")):
            if lines := last_lines(_end_of(path, _TAIL_BYTES), _TAIL_LINES):
                return lines
    lines = last_lines(_end_of(log, _TAIL_BYTES), 4 * _TAIL_LINES)
    return [line for line in lines if line.strip("=- ")][-_TAIL_LINES:]


def _end_of(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - limit))
            return file.read(limit)
    except OSError:
        return b""
