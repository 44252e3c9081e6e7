"""``stop``: a running session by its supervisor, a lost one by what it has left."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from torchtop.commands.errors import UsageError
from torchtop.commands.listing import living
from torchtop.commands.plain import follow_until_end
from torchtop.commands.text import named, safe
from torchtop.launch import processes
from torchtop.launch.sweep import Marked, all_leftovers, is_of, sweep, sweep_all, unseen
from torchtop.session.find import find_session
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    is_running,
    list_sessions,
    liveness,
    request_stop,
    sessions_root,
)

_STOP_TIMEOUT_S = 60.0
"""Longer than the whole stop ladder."""


def stop(args: argparse.Namespace) -> int:
    """Stop a running session, or end what a lost one has left, and wait until nothing is left."""
    if args.leftovers:
        if args.session:
            raise UsageError(f"say either --leftovers, or which session: {safe(args.session)}")
        return _end_all()
    if args.session and (run := _without_directory(args.session)):
        return _stop_unseen(run, args.no_wait)
    paths = find_session(args.session) if args.session else _the_running()
    if not is_running(paths):
        return _end_leftovers(paths)
    return _stop(paths, "kill" if args.kill else "soft" if args.soft else "stop", args.no_wait)


def _stop(paths: SessionPaths, mode: str, no_wait: bool) -> int:
    request_stop(paths, mode, "command line")
    if no_wait:
        return 0
    print(f"stopping {paths.id}", file=sys.stderr)
    snapshot = follow_until_end(paths.root, _STOP_TIMEOUT_S)
    until = time.monotonic() + 5.0
    # It lets go of its lock a moment before it ends.
    while _is_there(paths) and time.monotonic() < until:
        time.sleep(0.05)  # the supervisor has written its last record and is on its way out
    if snapshot.live:
        raise UsageError(
            f"{paths.id} has not ended within {_STOP_TIMEOUT_S:.0f} s; "
            f"try: torchtop stop --kill {paths.id}",
            status=1,
        )
    print(f"{snapshot.status}: {safe((snapshot.exit or {}).get('message') or '')}")
    return 0


def _is_there(paths: SessionPaths) -> bool:
    return liveness(paths) == "live" or living(paths)["supervisor"] is not None


def _the_running() -> SessionPaths:
    """The only session that runs: which of several is not for us to choose.

    Raises:
        UsageError: there is none, or more than one.
    """
    live = [paths for paths in list_sessions() if is_running(paths)]
    if len(live) == 1:
        return live[0]
    if live:
        names = ", ".join(paths.id for paths in live[:5])
        raise UsageError(f"{len(live)} sessions are running: {names}; say which")
    left = all_leftovers(sessions_root())
    hint = f"; lost sessions have left {named(left)}: torchtop stop --leftovers" if left else ""
    raise UsageError(f"no session is running{hint}")


def _end_leftovers(paths: SessionPaths) -> int:
    """End what a session without a supervisor has left on this machine."""
    found = [left for left in all_leftovers(paths.root.parent) if is_of(left, paths)]
    if not found:
        lost = "; its supervisor is gone, and no process of it is left on this machine"
        raise UsageError(f"{paths.id} is not running{lost if liveness(paths) == 'lost' else ''}")
    return _told(found, sweep(paths))


def _end_all() -> int:
    found = all_leftovers(sessions_root())
    if not found:
        print("no lost session has left a process on this machine")
        return 0
    return _told(found, sweep_all(sessions_root()))


def _told(found: list[Marked], remaining: list[Marked]) -> int:
    """Say what was ended, and what could not be."""
    stays = {left.process.pid for left in remaining}
    if ended := [left for left in found if left.process.pid not in stays]:
        print(f"ended {named(ended)}")
    if remaining:
        raise UsageError(
            f"cannot end {named(remaining)}: a process that waits for a device or a file system "
            "ends when that answers",
            status=1,
        )
    return 0


def _without_directory(reference: str) -> Marked | None:
    """The run of that id whose directory was deleted, if it still runs."""
    return next((run for run in unseen(sessions_root()) if run.session == reference), None)


def _stop_unseen(run: Marked, no_wait: bool) -> int:
    """Stop a run that no file can reach, by a signal to its supervisor."""
    supervisor = run.supervisor
    if supervisor is None or not processes.send(
        supervisor.pid, supervisor.start_ticks, signal.SIGTERM
    ):
        raise SessionError(f"{safe(run.session)} has ended by itself")
    print(f"stopping {safe(run.session)}", file=sys.stderr)
    until = time.monotonic() + (0.0 if no_wait else _STOP_TIMEOUT_S)
    while time.monotonic() < until:
        if not processes.is_running(supervisor.pid, supervisor.start_ticks):
            print("stopped; its records are gone with its directory")
            return 0
        time.sleep(0.05)
    if no_wait:
        return 0
    raise UsageError(
        f"its supervisor (pid {supervisor.pid}) has not ended within {_STOP_TIMEOUT_S:.0f} s",
        status=1,
    )
