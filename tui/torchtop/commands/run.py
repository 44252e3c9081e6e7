"""``torchtop``, ``run``, ``attach`` and ``replay``: starting and watching."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace

from torchtop.commands import plain
from torchtop.commands.errors import UsageError, here
from torchtop.commands.request import build_spec
from torchtop.commands.text import safe
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.start import start_session
from torchtop.launch.supervisor import LAUNCH_FILE
from torchtop.session.ephemeral import discard, discard_forgotten, reference
from torchtop.session.find import find_session
from torchtop.session.paths import (
    SessionPaths,
    liveness,
    told_warnings,
)


def run(args: argparse.Namespace) -> int:
    """Start a workload and watch it; the exit status is the training's without a screen."""
    if args.ephemeral and args.detach:
        raise UsageError("--ephemeral removes what --detach would leave to look at; give only one")
    spec = replace(build_spec(args, here()), ephemeral=args.ephemeral)
    discard_forgotten()
    paths = start_session(spec)
    for line in told_warnings(paths):
        print(f"torchtop: {safe(line)}", file=sys.stderr)
    if args.detach:
        print(paths.id)
        print(f"started; watch it with: torchtop attach {paths.id}", file=sys.stderr)
        return 0
    if args.no_tui or not has_screen():
        return _shown(paths, plain.watch(paths, args.interval))
    return _view(args, paths, spec=spec)


def _shown(paths: SessionPaths, status: int) -> int:
    """Remove a session that was to last until it was shown; the exit status."""
    discard(paths)
    return status


def view(args: argparse.Namespace) -> int:
    """The viewer without a session: pick a workload, or watch the GPUs."""
    _need_screen("torchtop needs a terminal; without one: torchtop run --no-tui WORKLOAD")
    discard_forgotten()
    _view(args, None)
    return 0


def attach(args: argparse.Namespace) -> int:
    """Watch a session that runs, or look at one that has ended."""
    paths = find_session(args.session)
    if args.no_tui or not has_screen():
        return _shown(paths, plain.watch(paths, args.interval, owner=False))
    _view(args, paths)
    return 0


def replay(args: argparse.Namespace) -> int:
    """Play a recorded session back."""
    paths = find_session(args.session, over=True)
    if liveness(paths) == "live":
        raise UsageError(f"{paths.id} is running: watch it with torchtop attach {paths.id}")
    _need_screen("replay needs a terminal; for the numbers: torchtop show")
    return _view(args, paths, replaying=True)


def _view(
    args: argparse.Namespace,
    paths: SessionPaths | None,
    replaying: bool = False,
    spec: LaunchSpec | None = None,
) -> int:
    from torchtop.app.gone import silence_if_gone
    from torchtop.app.main import run_viewer
    from torchtop.commands.live import LiveController

    if paths is not None and spec is None and not replaying:
        with contextlib.suppress(LaunchError):  # made elsewhere: it can be watched all the same
            spec = LaunchSpec.load(paths.stage / LAUNCH_FILE)
    controller = LiveController(args, here(), spec)
    try:
        status = run_viewer(
            controller,
            session=paths.root if paths else None,
            replay=replaying,
            interval_s=args.interval,
        )
    finally:
        controller.close()
    if status or replaying:
        return status
    try:
        return _leave(controller.started or paths)
    except OSError:
        return 0  # the terminal has gone: nobody is left to tell
    finally:
        for seen in (*controller.begun, *filter(None, [paths])):
            discard(seen)
        silence_if_gone()


def _leave(paths: SessionPaths | None) -> int:
    """Say on the terminal what becomes of the session, or became of it; the exit status."""
    if paths is None:
        return 0
    snapshot = plain.follow_until_end(paths.root, 0.0)
    if told := plain.unseen_run(paths):
        print(told)
        return 0
    if snapshot.live:
        print(f"{paths.id} goes on; watch it with: torchtop attach {reference(paths)}")
        return 0
    return plain.farewell(paths, snapshot)


def has_screen() -> bool:
    """Whether there is a terminal to draw on and to type at."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _need_screen(otherwise: str) -> None:
    if not has_screen():
        raise UsageError(otherwise)
