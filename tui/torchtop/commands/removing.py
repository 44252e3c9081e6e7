"""``rm``: deletes sessions, and sweeps with the sessions that they made."""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from torchtop.commands.errors import UsageError
from torchtop.commands.text import safe
from torchtop.launch.sweep import leftovers
from torchtop.session.find import find_either, shown
from torchtop.session.locks import is_locked
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    describe,
    is_running,
    list_sessions,
    read_json,
)
from torchtop.session.sweeps import SweepPaths, list_sweeps, sweeps_root
from torchtop.session.tail import Tail
from torchtop.session.values import child


@dataclass(frozen=True)
class _Chosen:
    """What is to be deleted: a session, or a sweep with its sessions."""

    what: SessionPaths | SweepPaths
    sessions: tuple[SessionPaths, ...]

    @property
    def told(self) -> str:
        """What it is called, with what goes with it."""
        count = len(self.sessions)
        if isinstance(self.what, SessionPaths) or not count:
            return self.what.id
        return f"{self.what.id} and its {count} session{'' if count == 1 else 's'}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``rm``."""
    parser.add_argument(
        "session", nargs="*", metavar="SESSION|SWEEP", help="id, start of one, or path"
    )
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        help="all that are, such as 12h, 30d; what runs stays, and the sessions of younger sweeps",
    )


def run(args: argparse.Namespace) -> int:
    """Delete what does not run: all that was asked for, or nothing where some of it cannot be."""
    chosen = [_find(reference) for reference in args.session]
    for each in chosen:
        if why := _in_use(each):
            raise UsageError(why)
    if args.older_than:
        old, kept = _older_than(time.time() - _age_s(args.older_than))
        for each in old:
            if why := _in_use(each):
                kept.append(why)
            else:
                chosen.append(each)
        for why in kept:
            print(f"torchtop: kept: {safe(why)}", file=sys.stderr)
        if not chosen:
            print("nothing else is that old" if kept else "nothing is that old")
            return 0
    if not chosen:
        raise UsageError("say which sessions, or --older-than 30d")
    for each in dict.fromkeys(chosen):
        _delete(each)
    return 0


def _find(reference: str) -> _Chosen:
    """What a reference names, of sessions and sweeps together.

    Raises:
        SessionError: nothing, or more than one.
    """
    found = find_either(reference)
    if isinstance(found, SessionPaths):
        return _Chosen(found, (found,))
    if found.root.parent != sweeps_root():
        raise SessionError(
            f"{shown(str(found.root))} is not among the sweeps in {sweeps_root()}; "
            "delete a copy by hand"
        )
    return _Chosen(found, _by_sweep([found])[found.id])


def _by_sweep(sweeps: Sequence[SweepPaths]) -> dict[str, tuple[SessionPaths, ...]]:
    """The sessions that are there of those that sweeps have made, by the sweep's id.

    By what the sweep has noted, and by what the session says: whoever measures may be killed
    between the start of a session and the note of it.
    """
    made: dict[str, tuple[SessionPaths, ...]] = {sweep.id: () for sweep in sweeps}
    noted = {one.get("session"): s.id for s in sweeps for one in Tail(s.runs).poll()}
    for paths in list_sessions():
        sweep = noted.get(paths.id) or child(describe(paths), "sweep").get("id")
        if isinstance(sweep, str) and sweep in made:
            made[sweep] = (*made[sweep], paths)
    return made


def _older_than(limit_s: float) -> tuple[list[_Chosen], list[str]]:
    """The sweeps and the sessions from before a moment (in Unix time), and what stays for a sweep.

    A sweep and its sessions are as old as what was last measured in it: it is told by them.
    """
    sweeps = list_sweeps()
    made = _by_sweep(sweeps)
    old = [_Chosen(s, made[s.id]) for s in sweeps if _measured_s(s) < limit_s]
    ages = {session: _made_s(session) for session in list_sessions()}
    kept = []
    for sweep in sweeps:
        before = [session for session in made[sweep.id] if ages.get(session, limit_s) < limit_s]
        if before and all(each.what != sweep for each in old):
            many = f"{len(before)} session{'' if len(before) == 1 else 's'}"
            them = "it" if len(before) == 1 else "them"
            kept.append(f"{many} of {sweep.id}, which is younger and needs {them}")
    swept = {session for sessions in made.values() for session in sessions}
    alone = (s for s, made_s in ages.items() if s not in swept and made_s < limit_s)
    return [*old, *(_Chosen(session, (session,)) for session in alone)], kept


def _in_use(each: _Chosen) -> str | None:
    """Why it cannot be deleted yet."""
    if isinstance(each.what, SweepPaths) and is_locked(each.what.lock):
        return (
            f"{each.what.id} is being measured; stop it first, with Ctrl-C where it was started "
            f"or x in: torchtop sweep --resume {each.what.id}"
        )
    for paths in each.sessions:
        if is_running(paths):
            return f"{paths.id} is running; stop it first: torchtop stop {paths.id}"
        if left := leftovers(paths):
            told = "a process" if len(left) == 1 else f"{len(left)} processes"
            return f"{paths.id} has left {told} running: torchtop stop {paths.id}"
    return None


def _delete(each: _Chosen) -> None:
    roots = [paths.root for paths in each.sessions]
    for root in [*roots, each.what.root]:
        try:
            if root.exists():
                shutil.rmtree(root)
        except OSError as error:
            raise SessionError(f"cannot delete {root}: {error.strerror}") from None
    print(f"deleted {each.told}")


def _made_s(paths: SessionPaths) -> float:
    """When a session was started, in Unix time; by its directory where nothing else tells."""
    told = describe(paths).get("wall_s")
    return float(told) if isinstance(told, (int, float)) else _changed_s([paths.root])


def _measured_s(paths: SweepPaths) -> float:
    """When something was last measured in a sweep, in Unix time."""
    changed = _changed_s([paths.plan, paths.runs])
    told = (read_json(paths.result) or {}).get("updated_at")
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return max(changed, datetime.fromisoformat(told).timestamp())  # type: ignore[arg-type]
    return changed


def _changed_s(files: Sequence[Path]) -> float:
    """When files were last changed; now where that is not known."""
    try:
        return max(file.stat().st_mtime for file in files if file.exists())
    except (OSError, ValueError):
        return time.time()


def _age_s(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if not found:
        raise UsageError(
            f"--older-than {safe(text)}: write a number and s, m, h, d or w, as in 30d"
        )
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[found[2]]
