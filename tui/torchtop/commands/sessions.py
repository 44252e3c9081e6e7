"""``ls``, ``show``, ``stop``, ``analyse`` and ``rm``: what there is, and what becomes of it."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from typing import Any

from torchtop.commands.errors import UsageError
from torchtop.commands.plain import follow_until_end
from torchtop.commands.text import duration, number, safe, table
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    describe,
    find_session,
    list_sessions,
    liveness,
    read_json,
    request_stop,
)
from torchtop.session.records import SCHEMA, start_ticks
from torchtop.session.summary import build_summary
from torchtop.session.tail import Tail

_LAST_BYTES = 128 << 10
"""Enough for the last analysis of many ranks."""

_STOP_TIMEOUT_S = 60.0
"""Longer than the whole stop ladder."""


def ls(args: argparse.Namespace) -> int:
    """List the sessions, newest first."""
    rows = [_row(paths) for paths in list_sessions()]
    if args.json:
        print(json.dumps({"schema": SCHEMA, "sessions": rows}, indent=1))
        return 0
    if not rows:
        print("no sessions yet; start one with: torchtop run WORKLOAD")
        return 0
    print(
        table(
            ("SESSION", "WORKLOAD", "STATE", "STARTED", "RAN", "STEPS", "SAMPLES/S", "VERDICT"),
            [
                (
                    row["id"],
                    safe(row["workload"], 30),
                    row["status"],
                    (row["started_at"] or "–").replace("T", " ")[:16],
                    duration(row["wall_s"]),
                    "–" if row["steps"] is None else row["steps"],
                    number(row["samples_per_s"]),
                    row["verdict"] or "–",
                )
                for row in rows
            ],
        )
    )
    return 0


def _row(paths: SessionPaths) -> dict[str, Any]:
    """What ``ls`` says of a session, without reading its records where a summary exists."""
    meta, summary = describe(paths), read_json(paths.summary) or {}
    alive = liveness(paths)
    status = {"live": "running", "starting": "starting", "lost": "lost"}.get(alive)
    wall = summary.get("wall_s")
    if wall is None and alive == "live" and meta.get("wall_s"):
        wall = time.time() - meta["wall_s"]
    return {
        "id": paths.id,
        "name": meta.get("name"),
        "workload": meta.get("workload"),
        "status": status or summary.get("status") or "ended",
        "started_at": meta.get("started_at"),
        "wall_s": wall,
        "device": meta.get("device"),
        "nproc": meta.get("nproc"),
        "steps": summary.get("steps"),
        "samples_per_s": (summary.get("throughput") or {}).get("samples_per_s"),
        "verdict": (summary.get("verdict") or {}).get("kind"),
        **(_now(paths) if alive == "live" else {}),
        "pids": _pids(paths),
        "directory": str(paths.root),
    }


def _now(paths: SessionPaths) -> dict[str, Any]:
    """How a running session stands, by its last analysis."""
    last: dict[str, Any] = {}
    for record in Tail(paths.analysis, last_bytes=_LAST_BYTES).poll():
        last = record if record["kind"] == "analysis" else last
    return {
        "steps": last.get("steps"),
        "samples_per_s": (last.get("throughput") or {}).get("samples_per_s"),
        "verdict": (last.get("verdict") or {}).get("kind"),
    }


def _pids(paths: SessionPaths) -> dict[str, Any]:
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
    if isinstance(pid, int) and start_ticks(pid) == ticks and ticks is not None:
        into[key] = pid


def show(args: argparse.Namespace) -> int:
    """Print a session's summary: of one that has ended as it was saved, of another as it stands."""
    from torchtop.session.report import render_markdown

    paths = find_session(args.session)
    summary = read_json(paths.summary)
    if summary is None or liveness(paths) == "live":
        summary = build_summary(paths)
    if args.json:
        print(json.dumps(summary, indent=1))
        return 0
    text = render_markdown(summary)
    # Control characters are out in any case; what keeps Markdown from markup is for Markdown.
    print(re.sub(r"\\([^\w\s])", r"\1", text) if sys.stdout.isatty() else text)
    return 0


def stop(args: argparse.Namespace) -> int:
    """Stop a running session and wait until nothing of it is left."""
    paths = _running(args.session)
    mode = "kill" if args.kill else "soft" if args.soft else "stop"
    request_stop(paths, mode, "command line")
    if args.no_wait:
        return 0
    print(f"stopping {paths.id}", file=sys.stderr)
    snapshot = follow_until_end(paths.root, _STOP_TIMEOUT_S)
    until = time.monotonic() + 5.0
    while liveness(paths) == "live" and time.monotonic() < until:
        time.sleep(0.05)  # the supervisor has written its last record and is on its way out
    if snapshot.live:
        raise UsageError(
            f"{paths.id} has not ended within {_STOP_TIMEOUT_S:.0f} s; "
            f"try: torchtop stop --kill {paths.id}",
            status=1,
        )
    print(f"{snapshot.status}: {safe((snapshot.exit or {}).get('message') or '')}")
    return 0


def _running(reference: str | None) -> SessionPaths:
    """The session to stop: the named one, or the only one that runs."""
    if reference:
        paths = find_session(reference)
        if liveness(paths) not in ("live", "starting"):
            raise UsageError(f"{paths.id} is not running")
        return paths
    live = [paths for paths in list_sessions() if liveness(paths) in ("live", "starting")]
    if not live:
        raise UsageError("no session is running")
    if len(live) > 1:
        names = ", ".join(paths.id for paths in live[:5])
        raise UsageError(f"{len(live)} sessions are running: {names}; say which")
    return live[0]


def analyse(args: argparse.Namespace) -> int:
    """Make the verdicts and the summary of an ended session again, from its records."""
    from torchtop.launch.analyst import analyse_again
    from torchtop.session.summary import write_summary

    paths = find_session(args.session)
    if liveness(paths) == "live":
        raise UsageError(f"{paths.id} is running; its analyst is at work already")
    analyse_again(paths)
    write_summary(paths)
    args.json = False
    return show(args)


def rm(args: argparse.Namespace) -> int:
    """Delete sessions that are not running."""
    chosen = [find_session(reference) for reference in args.session]
    if args.older_than:
        limit = time.time() - _age_s(args.older_than)
        chosen += [p for p in list_sessions() if float(describe(p).get("wall_s") or 0) < limit]
    if not chosen:
        if args.older_than:
            print("nothing is that old")
            return 0
        raise UsageError("say which sessions, or --older-than 30d")
    for paths in dict.fromkeys(chosen):
        if liveness(paths) in ("live", "starting"):
            raise UsageError(f"{paths.id} is running; stop it first: torchtop stop {paths.id}")
        try:
            shutil.rmtree(paths.root)
        except OSError as error:
            raise SessionError(f"cannot delete {paths.root}: {error.strerror}") from None
        print(f"deleted {paths.id}")
    return 0


def _age_s(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smhdw])", text)
    if not found:
        raise UsageError(
            f"--older-than {safe(text)}: write a number and s, m, h, d or w, as in 30d"
        )
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[found[2]]
