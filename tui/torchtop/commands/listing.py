"""``ls``: the sessions, how each one stands, and what lost ones have left running."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from torchtop.commands.errors import unusable_home
from torchtop.commands.text import duration, named, number, safe, table
from torchtop.launch.processes import is_running
from torchtop.launch.sweep import Marked, all_leftovers, is_of, unseen
from torchtop.session.ephemeral import discard_forgotten
from torchtop.session.overview import stage_of, standing
from torchtop.session.paths import (
    Liveness,
    SessionError,
    SessionPaths,
    describe,
    list_sessions,
    liveness,
    read_json,
    sessions_root,
)
from torchtop.session.presence import is_watched
from torchtop.session.records import SCHEMA
from torchtop.session.tail import Tail
from torchtop.session.values import child
from torchtop.session.values import number as known


def ls(args: argparse.Namespace) -> int:
    """List the sessions, newest first."""
    if told := unusable_home():
        raise SessionError(told)
    discard_forgotten()
    left, hidden = all_leftovers(sessions_root()), unseen(sessions_root())
    rows = [_row(paths, left) for paths in list_sessions()]
    if args.json:
        listed = {"schema": SCHEMA, "sessions": rows, "leftovers": [_process(p) for p in left]}
        print(json.dumps({**listed, "without_directory": [_process(p) for p in hidden]}, indent=1))
        return 0
    cells = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    none = "no sessions yet; start one with: torchtop run WORKLOAD"
    print(as_table(rows, cells) if rows else none)
    for line in [*_problems(rows), *_left_lines(left), *_hidden_lines(hidden)]:
        print(line)
    return 0


def as_table(rows: list[dict[str, Any]], cells: int | None) -> str:
    """The rows as lines; where they are too wide, without what an id tells, too.

    Args:
        rows: as ``ls --json`` has them.
        cells: how wide the terminal is; None where there is none.
    """
    told = ""
    for left_out in ((), ("STARTED",), ("STARTED", "WORKLOAD")):
        columns = [column for column in _COLUMNS if column not in left_out]
        told = table(columns, [[_COLUMNS[column](row) for column in columns] for row in rows])
        if cells is None or max(map(len, told.splitlines())) <= cells:
            break
    return told


_COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "SESSION": lambda row: row["id"],
    "WORKLOAD": lambda row: safe(row["workload"] or "–", 30),
    "STATE": lambda row: row["status"] if row["state"] == "ended" else row["state"],
    "STARTED": lambda row: str(row["started_at"] or "–").replace("T", " ")[:16],
    "RAN": lambda row: duration(known(row["wall_s"])),
    "STEPS": lambda row: number(known(row["steps"])),
    "SAMPLES/S": lambda row: number(known(row["samples_per_s"])),
    "VERDICT": lambda row: row["stage"] or row["verdict"] or "–",
}


def _problems(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['id']}: {row['problem']}" for row in rows if row["problem"]]


def _left_lines(left: list[Marked]) -> list[str]:
    """What is left, and how to end it."""
    if not left:
        return []
    them = "it" if len(left) == 1 else "them"
    return [f"left running by lost sessions: {named(left)}; end {them}: torchtop stop --leftovers"]


def _hidden_lines(hidden: list[Marked]) -> list[str]:
    return [
        f"{safe(run.session)} still runs, but its directory {safe(run.directory)} was deleted: "
        f"stop it with: torchtop stop {safe(run.session)}"
        for run in hidden
    ]


def _row(paths: SessionPaths, left: list[Marked]) -> dict[str, Any]:
    """What ``ls`` says of a session, without reading its records where a summary exists.

    ``stage`` is null, or says why ``verdict`` is UNDECIDED: see `torchtop.session.overview.Stage`.
    """
    meta, summary = describe(paths), read_json(paths.summary) or {}
    alive = liveness(paths)
    status = {"live": "running", "starting": "starting", "lost": "lost"}.get(alive)
    now = {} if alive == "ended" else _now(paths, alive != "lost")
    if alive == "live" and meta.get("wall_s"):
        now["wall_s"] = time.time() - meta["wall_s"]
    return {
        "id": paths.id,
        "name": meta.get("name"),
        "workload": meta.get("workload"),
        "status": status or summary.get("status") or "ended",
        "state": _state(paths, alive),
        "started_at": meta.get("started_at"),
        "wall_s": summary.get("wall_s"),
        "device": meta.get("device"),
        "nproc": meta.get("nproc"),
        "steps": summary.get("steps"),
        "samples_per_s": child(summary, "throughput").get("samples_per_s"),
        "verdict": child(summary, "verdict").get("kind"),
        "stage": stage_of(summary, live=False),
        **now,
        "pids": living(paths),
        "leftovers": [_process(p) for p in left if is_of(p, paths)],
        "problem": meta.get("problem"),
        "directory": str(paths.root),
    }


def _state(paths: SessionPaths, alive: Liveness) -> str:
    """As `liveness`; a live session that no viewer watches is detached."""
    return "detached" if alive == "live" and not is_watched(paths) else alive


def _process(of: Marked) -> dict[str, Any]:
    process, supervisor = of.process, of.supervisor
    return {
        "session": of.session,
        "process_pid": process.pid,
        "pid_start_ticks": process.start_ticks,
        "name": process.name,
        "state": process.state,
        "supervisor_pid": supervisor.pid if supervisor else None,
    }


def _now(paths: SessionPaths, live: bool) -> dict[str, Any]:
    """How a session without an end stands, by its last analysis."""
    told = standing(paths)
    return {
        "wall_s": told["wall_s"],
        "steps": told["steps"],
        "samples_per_s": child(told, "throughput").get("samples_per_s"),
        "verdict": child(told, "verdict").get("kind"),
        "stage": stage_of(told, live),
    }


def living(paths: SessionPaths) -> dict[str, Any]:
    """The processes of a session that are alive, by role; ranks by their numbers."""
    roles: dict[str, Any] = dict.fromkeys(("supervisor", "sampler", "analyst", "agent"))
    ranks: dict[str, int] = {}
    for node in paths.nodes():
        for record in Tail(node.events).poll():
            if record["kind"] == "header":
                _keep(roles, "supervisor", record.get("pid"), record.get("pid_start_ticks"))
            elif record["kind"] == "process":
                into, key = roles, record.get("role")
                if key == "rank":
                    into, key = ranks, str(record.get("rank"))
                _keep(into, key, record.get("process_pid"), record.get("pid_start_ticks"))
    return {**roles, "ranks": ranks}


def _keep(into: dict[str, Any], key: Any, pid: Any, ticks: Any) -> None:
    """Note a process, if it is still that process: a pid alone may have been given out again."""
    if isinstance(pid, int) and ticks is not None and is_running(pid, ticks):
        into[key] = pid
