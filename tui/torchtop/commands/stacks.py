"""``stacks``: where the Python code of every rank stands at this moment."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from torchtop.commands.text import safe
from torchtop.diagnose.words import doing_after
from torchtop.session.find import find_session
from torchtop.session.follow import Follower
from torchtop.session.paths import SessionPaths
from torchtop.session.records import SCHEMA
from torchtop.session.stacks import take, tell

_INDENTS = {"rank": "", "own": "  ", "note": "    ", "library": "      ", "blank": ""}


def stacks(args: argparse.Namespace) -> int:
    """Print the Python stacks of all ranks; training goes on."""
    paths = find_session(args.session)
    found = take(paths, "command line")
    if args.json:
        told = {"schema": SCHEMA, "id": paths.id, "ranks": [asdict(stack) for stack in found]}
        print(json.dumps(told, indent=1))
        return 0
    for line in tell(found, _last_seen(paths)):
        print(f"{_INDENTS[line.kind]}{safe(line.text)}".rstrip())
    return 0


def _last_seen(paths: SessionPaths) -> dict[int, str]:
    """In which phase each rank was last seen, and how long ago."""
    return {
        rank.rank: f"last seen {doing_after(rank.marker)}, {rank.marker_age_s:.0f} s ago"
        for rank in Follower(paths.root).poll().ranks
        if rank.marker and rank.marker_age_s is not None
    }
