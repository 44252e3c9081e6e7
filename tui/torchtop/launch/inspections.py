"""Having the ranks look at one step each: they look for a file, in which the request is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtop.launch.journal import Journal
from torchtop.session.paths import SessionPaths, write_json
from torchtop.session.records import INSPECT_FILE


def ask_ranks(paths: SessionPaths, events: Journal, request: Mapping[str, Any]) -> None:
    """Leave a request where every rank finds it; on all nodes it is the same one.

    Args:
        paths: the session.
        events: where an ``inspect`` record tells who asked.
        request: id and requested_by.
    """
    who = str(request.get("requested_by") or "unknown")
    name = str(request.get("id") or who)
    try:
        write_json(paths.ranks / INSPECT_FILE, {"id": name, "requested_by": who})
    except OSError:
        return  # a full disk: whoever asked is told that no rank has answered
    events.write("inspect", requested_by=who, id=name)
