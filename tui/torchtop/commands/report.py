"""``report``: a session or a sweep as one HTML file."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from torchtop.commands.export import new_file
from torchtop.commands.text import safe
from torchtop.session.find import find_either
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionError, SessionPaths, safe_name
from torchtop.session.sweeps import SweepPaths, read_sweep


def run(args: argparse.Namespace) -> int:
    """Write the report, and say where."""
    if importlib.util.find_spec("matplotlib") is None:
        raise SessionError(
            "a report is drawn by Matplotlib, which is not installed: "
            "pip install 'torchtop[report]'; without plots: torchtop show"
        )
    found = find_either(args.session)
    text = _of_session(found) if isinstance(found, SessionPaths) else _of_sweep(found)
    path = Path(args.output or f"{safe_name(found.id, 100)}.html")
    with new_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    print(safe(path))
    return 0


def _of_session(paths: SessionPaths) -> str:
    from torchtop.htmlreport.session_page import session_report

    loaded = load_paths(paths)
    if loaded.running:
        print(f"{safe(paths.id)} is running: this is how it stands", file=sys.stderr)
    return session_report(loaded)


def _of_sweep(paths: SweepPaths) -> str:
    from torchtop.htmlreport.sweep_page import sweep_report

    return sweep_report(read_sweep(paths))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``report``."""
    parser.add_argument(
        "session",
        nargs="?",
        metavar="SESSION|SWEEP",
        help="id, start of one, or path (default: the latest session that runs, else the latest)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the file (default: ID.html)")
