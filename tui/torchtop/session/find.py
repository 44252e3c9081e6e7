"""Which session a person means; where nothing is said, by one rule for all commands."""

from __future__ import annotations

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
    if not sessions:
        raise SessionError(f"there are no sessions in {home()}; start one with: torchtop run")
    if not reference:
        return _latest(sessions, over)
    exact = [s for s in sessions if s.id == reference]
    hits = exact or [s for s in sessions if s.id.startswith(reference)]
    hits = hits or [s for s in sessions if (read_json(s.meta) or {}).get("name") == reference][:1]
    if not hits:
        raise SessionError(f"no session is called {shown(reference)}; see: torchtop ls")
    if len(hits) > 1:
        raise SessionError(f"{shown(reference)} fits {len(hits)} sessions; give more of the id")
    return hits[0]


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
    raise SessionError(f"{shown(reference)} is not a session directory (no session.json in it)")


def shown(text: str) -> str:
    """What a user typed, fit for a one-line message."""
    flat = "".join(c if c.isprintable() else "?" for c in text)
    return flat if len(flat) <= 200 else flat[:200] + "..."
