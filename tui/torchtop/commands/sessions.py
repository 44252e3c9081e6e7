"""``show``, ``analyse`` and ``rm``: what becomes of sessions that are over."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time

from torchtop.commands.errors import UsageError
from torchtop.commands.text import safe
from torchtop.launch.sweep import leftovers
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    describe,
    find_session,
    list_sessions,
    liveness,
)
from torchtop.session.saved import saved_summary
from torchtop.session.summary import build_summary


def show(args: argparse.Namespace) -> int:
    """Print a session's summary: of one that has ended as it was saved, of another as it stands."""
    from torchtop.session.report import plain, render_markdown

    paths = find_session(args.session)
    summary = saved_summary(paths)
    if summary is None or liveness(paths) == "live":
        summary = build_summary(paths)
    if args.json:
        print(json.dumps(summary, indent=1))
        return 0
    text = render_markdown(summary)
    # Control characters are out in any case; what keeps Markdown from markup is for Markdown.
    print(plain(text) if sys.stdout.isatty() else text)
    return 0


def analyse(args: argparse.Namespace) -> int:
    """Make the verdicts and the summary of an ended session again, from its records."""
    from torchtop.commands.progress import Progress
    from torchtop.launch.analyst import analyse_again
    from torchtop.session.summary import write_summary

    paths = find_session(args.session)
    if liveness(paths) == "live":
        raise UsageError(f"{paths.id} is running; its analyst is at work already")
    progress = Progress(f"analysing {paths.id}")
    try:
        analyse_again(paths, progress)
    finally:
        progress.end()
    write_summary(paths)
    args.json = False
    return show(args)


def rm(args: argparse.Namespace) -> int:
    """Delete sessions that are not running."""
    chosen = [find_session(reference) for reference in args.session]
    if args.older_than:
        limit = time.time() - _age_s(args.older_than)
        chosen += [paths for paths in list_sessions() if _made_s(paths) < limit]
    if not chosen:
        if args.older_than:
            print("nothing is that old")
            return 0
        raise UsageError("say which sessions, or --older-than 30d")
    for paths in dict.fromkeys(chosen):
        if liveness(paths) in ("live", "starting"):
            raise UsageError(f"{paths.id} is running; stop it first: torchtop stop {paths.id}")
        if left := leftovers(paths):
            told = "a process" if len(left) == 1 else f"{len(left)} processes"
            raise UsageError(f"{paths.id} has left {told} running: torchtop stop {paths.id}")
        try:
            shutil.rmtree(paths.root)
        except OSError as error:
            raise SessionError(f"cannot delete {paths.root}: {error.strerror}") from None
        print(f"deleted {paths.id}")
    return 0


def _made_s(paths: SessionPaths) -> float:
    """When a session was started, in Unix time; by its directory where nothing else tells."""
    told = describe(paths).get("wall_s")
    if isinstance(told, (int, float)):
        return float(told)
    try:
        return paths.root.stat().st_mtime
    except OSError:
        return time.time()


def _age_s(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if not found:
        raise UsageError(
            f"--older-than {safe(text)}: write a number and s, m, h, d or w, as in 30d"
        )
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[found[2]]
