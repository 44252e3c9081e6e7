"""``show`` and ``analyse``: what a session comes to."""

from __future__ import annotations

import argparse
import json
import sys

from torchtop.commands.errors import UsageError
from torchtop.session.find import find_session
from torchtop.session.load import as_it_stands
from torchtop.session.paths import SessionError, liveness
from torchtop.session.saved import saved_summary


def show(args: argparse.Namespace) -> int:
    """Print a session's summary: of one that has ended as it was saved, of another as it stands."""
    from torchtop.session.report import plain, render_markdown

    paths = find_session(args.session)
    summary = saved_summary(paths)
    if summary is None or liveness(paths) == "live":
        summary = as_it_stands(paths)
    if args.json:
        print(json.dumps(summary, indent=1))
        return 0
    try:
        text = render_markdown(summary)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise SessionError(
            f"{paths.summary} is not what it should be; make it again: torchtop analyse {paths.id}"
        ) from None
    # Control characters are out in any case; what keeps Markdown from markup is for Markdown.
    print(plain(text) if sys.stdout.isatty() else text)
    return 0


def analyse(args: argparse.Namespace) -> int:
    """Make the verdicts and the summary of an ended session again, from its records."""
    from torchtop.commands.progress import Progress
    from torchtop.launch.analyst import analyse_again
    from torchtop.session.summary import write_summary

    paths = find_session(args.session, over=True)
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
