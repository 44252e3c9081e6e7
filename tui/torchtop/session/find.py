"""Which session a person means; where nothing is said, by one rule for all commands."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    home,
    is_running,
    is_session,
    list_sessions,
    liveness,
    read_json,
)
from torchtop.session.sweeps import SweepPaths, find_sweep, list_sweeps


class NotFoundError(SessionError):
    """Nothing is called what was typed."""


def find_session(reference: str | None, over: bool = False) -> SessionPaths:
    """A session by id, by the start of its id, by name, or by path.

    Args:
        reference: what was typed. When omitted: the latest session that runs, else the latest.
        over: when omitted, the latest that does not run: for what only records can be made of.

    Raises:
        SessionError: there is none, or more than one.
    """
    if reference == "":  # a variable of a script that is not set: no session is meant by it
        raise SessionError("the session's name is empty; see: torchtop ls")
    if reference and (paths := _by_path(reference)):
        return paths
    sessions = list_sessions()
    if not reference:
        if sessions:
            return _latest(sessions, over)
        raise SessionError(f"there are no sessions in {home()}; start one with: torchtop run")
    exact = [s for s in sessions if s.id == reference]
    hits = exact or [s for s in sessions if s.id.startswith(reference)]
    hits = hits or [s for s in sessions if (read_json(s.meta) or {}).get("name") == reference][:1]
    if not hits:
        raise NotFoundError(_no_session(reference, bool(sessions)))
    if len(hits) > 1:
        raise SessionError(f"{shown(reference)} fits {len(hits)} sessions; give more of the id")
    return hits[0]


def _no_session(reference: str, others: bool) -> str:
    """That no session is called so; and what else is, or where to look."""
    told = f"no session is called {shown(reference)}"
    sweeps = [sweep.id for sweep in list_sweeps() if sweep.id.startswith(reference)]
    if len(sweeps) == 1:
        return f"{told}; a sweep is: torchtop report {sweeps[0]}"
    if not others:
        return f"{told}: there are no sessions in {home()}; start one with: torchtop run"
    return f"{told}; see: torchtop ls"


def find_either(reference: str | None) -> SessionPaths | SweepPaths:
    """The session that a reference names, else the sweep; the latest session for None.

    Raises:
        SessionError: there is neither, or more than one.
    """
    if not reference:
        return find_session(reference)
    ids = [*(s.id for s in list_sessions()), *(s.id for s in list_sweeps())]
    fits = [each for each in ids if each.startswith(reference)]
    if len(fits) > 1 and reference not in fits:
        raise SessionError(
            f"{shown(reference)} fits {len(fits)} sessions and sweeps; give more of the id"
        )
    try:
        return find_session(reference)
    except NotFoundError:
        with contextlib.suppress(SessionError):
            return find_sweep(reference)
    if "/" in reference:
        raise NotFoundError(
            f"{shown(reference)} is not a session directory (no session.json in it), "
            "and not a sweep's (no sweep.json)"
        )
    raise NotFoundError(
        f"no session and no sweep is called {shown(reference)}; see: torchtop ls, or: "
        "torchtop sweep --list"
    )


def _latest(sessions: list[SessionPaths], over: bool) -> SessionPaths:
    """The one that is meant when none is named; of a list that is newest first."""
    if not over:
        return next(filter(is_running, sessions), sessions[0])
    idle = [paths for paths in sessions if liveness(paths) != "live"]
    if idle:  # one without an end may have begun a moment ago, or be damaged
        return next((paths for paths in idle if not is_running(paths)), idle[0])
    raise SessionError(f"no session has ended yet; {sessions[0].id} is running")


def _by_path(reference: str) -> SessionPaths | None:
    """The session directory that a reference names, or None when it is no path."""
    try:
        paths = SessionPaths(Path(reference).expanduser().absolute())
        found = is_session(paths)
    except (OSError, RuntimeError, ValueError):
        found = False  # too long a name, no such user, a NUL in it
    if found:
        return paths
    if "/" not in reference:
        return None
    raise NotFoundError(f"{shown(reference)} is not a session directory (no session.json in it)")


def shown(text: str) -> str:
    """What a user typed, fit for a one-line message."""
    flat = "".join(c if c.isprintable() else "?" for c in text)
    return flat if len(flat) <= 200 else flat[:200] + "..."
