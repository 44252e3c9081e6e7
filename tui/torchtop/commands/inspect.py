"""``inspect``: which lines of the script make the host wait for its GPU, in one step."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from torchtop.commands.text import safe
from torchtop.session.find import find_session
from torchtop.session.inspections import take, tell
from torchtop.session.records import SCHEMA

_INDENTS = {"rank": "", "call": "  ", "note": "  "}


def inspect(args: argparse.Namespace) -> int:
    """Print the calls of one step that make the host wait; training goes on."""
    paths = find_session(args.session)
    print(f"inspecting one step of each rank of {paths.id}", file=sys.stderr)
    found = take(paths, "command line")
    if args.json:
        told = {"schema": SCHEMA, "id": paths.id, "ranks": [asdict(one) for one in found]}
        print(json.dumps(told, indent=1))
        return 0
    for line in tell(found):
        print(f"{_INDENTS[line.kind]}{safe(line.text)}")
    return 0
