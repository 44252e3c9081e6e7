"""``torchtop``, ``run``, ``attach`` and ``replay``: starting and watching."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchtop.commands import plain
from torchtop.commands.errors import UsageError
from torchtop.commands.request import build_spec
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session.paths import SessionPaths, find_session, liveness


def run(args: argparse.Namespace) -> int:
    """Start a workload and watch it; the exit status is the training's without a screen."""
    spec = build_spec(args, Path.cwd())
    paths = start_session(spec)
    if args.detach:
        print(paths.id)
        print(f"started; watch it with: torchtop attach {paths.id}", file=sys.stderr)
        return 0
    if args.no_tui or not _has_screen():
        return plain.watch(paths, args.interval)
    return _view(args, paths, spec=spec)


def view(args: argparse.Namespace) -> int:
    """The viewer without a session: pick a workload, or watch the GPUs."""
    _need_screen("torchtop needs a terminal; without one: torchtop run --no-tui WORKLOAD")
    return _view(args, None)


def attach(args: argparse.Namespace) -> int:
    """Watch a session that runs, or look at one that has ended."""
    paths = find_session(args.session)
    if args.no_tui or not _has_screen():
        return plain.watch(paths, args.interval)
    return _view(args, paths)


def replay(args: argparse.Namespace) -> int:
    """Play a recorded session back."""
    paths = find_session(args.session)
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
    from torchtop.app.main import run_viewer
    from torchtop.commands.live import LiveController

    controller = LiveController(args, Path.cwd(), started=(paths, spec))
    try:
        return run_viewer(
            controller,
            session=paths.root if paths else None,
            replay=replaying,
            interval_s=args.interval,
        )
    finally:
        controller.close()


def _has_screen() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _need_screen(otherwise: str) -> None:
    if not _has_screen():
        raise UsageError(otherwise)
