"""Where sessions live, what their files are called, and whether one is alive."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torchtop.session.locks import is_locked
from torchtop.session.records import SCHEMA, finite
from torchtop.session.values import decode

Liveness = Literal["starting", "live", "ended", "lost"]

_START_GRACE_S = 30.0
"""How long a session may be without a supervisor's lock before it counts as lost."""


class SessionError(Exception):
    """Something about a session that the user can act on; the message is one line."""


def home() -> Path:
    """torchtop's state directory: ``$TORCHTOP_HOME``, else under ``$XDG_STATE_HOME``.

    Raises:
        SessionError: the user has no home directory, as an arbitrary user id in a container.
    """
    override = os.environ.get("TORCHTOP_HOME")
    state = Path(override or os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    try:
        state = state.expanduser().absolute()
    except RuntimeError:
        raise SessionError(
            "this user has no home directory; set TORCHTOP_HOME to a directory you can write"
        ) from None
    return state if override else state / "torchtop"


def config_home() -> Path:
    """The user's configuration directory for torchtop.

    Raises:
        SessionError: as for `home`.
    """
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "torchtop"
    except RuntimeError:
        return home() / "config"


def private_dir(path: Path) -> Path:
    """Make a directory that only its owner can enter.

    Raises:
        SessionError: it cannot be made.
    """
    try:
        if home() in path.parents:  # mkdir gives the mode to the last directory alone
            home().mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SessionError(
            f"cannot make {path}: {error.strerror}; set TORCHTOP_HOME to a directory you can write"
        ) from None
    return path


@dataclass(frozen=True)
class SessionPaths:
    """The files of one session directory."""

    root: Path

    @property
    def id(self) -> str:
        """The session's id, which is its directory's name."""
        return self.root.name

    @property
    def meta(self) -> Path:
        """``session.json``."""
        return self.root / "session.json"

    @property
    def ranks(self) -> Path:
        """The folder of the probes' files."""
        return self.root / "ranks"

    @property
    def logs(self) -> Path:
        """The folder of raw outputs, laid out by torchrun."""
        return self.root / "logs"

    @property
    def stage(self) -> Path:
        """What ranks load."""
        return self.root / "stage"

    @property
    def analysis(self) -> Path:
        """``analysis.jsonl``."""
        return self.root / "analysis.jsonl"

    @property
    def history(self) -> Path:
        """``history.jsonl``."""
        return self.root / "history.jsonl"

    @property
    def summary(self) -> Path:
        """``summary.json``."""
        return self.root / "summary.json"

    @property
    def summary_text(self) -> Path:
        """``summary.md``."""
        return self.root / "summary.md"

    @property
    def viewers(self) -> Path:
        """Held with a shared flock by each viewer that watches; empty."""
        return self.root / "viewers"

    def node(self, host: str | None = None) -> NodePaths:
        """The folder of one node (this host when omitted)."""
        return NodePaths(self.root / "nodes" / safe_name(host or socket.gethostname()))

    def nodes(self) -> list[NodePaths]:
        """The folders of all nodes that take part, in order of name."""
        try:
            return [NodePaths(p) for p in sorted((self.root / "nodes").iterdir()) if p.is_dir()]
        except OSError:
            return []


@dataclass(frozen=True)
class NodePaths:
    """One node's files within a session directory."""

    root: Path

    @property
    def events(self) -> Path:
        """The supervisor's records."""
        return self.root / "events.jsonl"

    @property
    def devices(self) -> Path:
        """The sampler's records."""
        return self.root / "devices.jsonl"

    @property
    def lock(self) -> Path:
        """Held with flock by the supervisor for as long as it lives."""
        return self.root / "lock"

    @property
    def requests(self) -> Path:
        """Where viewers leave requests (to stop, for stacks, to inspect), one file a requester."""
        return self.root / "requests"


def safe_name(text: str, limit: int = 40) -> str:
    """A piece of a file name made from any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:limit] or "x"


def sessions_root() -> Path:
    """The folder that holds the session directories."""
    return home() / "sessions"


def new_session(name: str, root: Path | None = None) -> SessionPaths:
    """Make an empty session directory; its id begins with the local time.

    Args:
        name: what it is called.
        root: where to make it, instead of where all sessions are.

    Raises:
        SessionError: the state directory cannot be written.
    """
    if root is None:
        private_dir(home())
        root = private_dir(sessions_root())
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for _ in range(20):
        paths = SessionPaths(root / f"{stamp}-{safe_name(name)}-{secrets.token_hex(2)}")
        try:
            paths.root.mkdir(mode=0o700)
            for folder in (paths.ranks, paths.logs, paths.stage):
                folder.mkdir(mode=0o700)
            paths.node().requests.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise SessionError(
                f"cannot make {paths.root}: {error.strerror}; "
                "set TORCHTOP_HOME to a directory you can write"
            ) from None
        return paths
    raise SessionError(f"cannot find a free session name in {root}")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that a reader sees all of it or none; non-finite numbers become null.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(finite(value), indent=1, allow_nan=False, default=str)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.chmod(0o600)
    partial.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file, or None when it is absent or not one."""
    try:
        value = decode(path.read_text(encoding="utf-8", errors="replace").encode())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def list_sessions() -> list[SessionPaths]:
    """All sessions, newest first."""
    try:
        found = [SessionPaths(p) for p in sessions_root().iterdir()]
    except OSError:
        return []
    return sorted(filter(is_session, found), key=lambda paths: paths.id, reverse=True)


def is_session(paths: SessionPaths) -> bool:
    """Whether a directory is a session's, be it one that has lost its ``session.json``."""
    return paths.meta.is_file() or any(node.events.is_file() for node in paths.nodes())


def liveness(paths: SessionPaths) -> Liveness:
    """Whether a session is starting, live, ended in order, or lost its supervisor."""
    nodes = paths.nodes()
    if any(is_locked(node.lock) for node in nodes):
        return "live"
    if any(_has_ended(node.events) for node in nodes) or _is_summed_up(paths):
        return "ended"
    if not any(node.lock.exists() for node in nodes):
        made_s = (read_json(paths.meta) or {}).get("wall_s")
        if isinstance(made_s, (int, float)) and 0 <= time.time() - made_s < _START_GRACE_S:
            return "starting"
    return "lost"


def is_running(paths: SessionPaths) -> bool:
    """Whether a session runs, or is about to."""
    return liveness(paths) in ("live", "starting")


def _is_summed_up(paths: SessionPaths) -> bool:
    """Whether there is the summary of an end; one may be saved of a run that has not ended too."""
    status = (read_json(paths.summary) or {"status": None}).get("status")
    return status in ("done", "failed", "stopped")


def _has_ended(events: Path) -> bool:
    """Whether the last whole record of an event file is ``end``."""
    try:
        with events.open("rb") as file:
            file.seek(max(0, events.stat().st_size - 4096))
            lines = file.read().splitlines()
    except OSError:
        return False
    return bool(lines) and b'"kind":"end"' in lines[-1]


def request_stop(paths: SessionPaths, mode: str, requested_by: str) -> None:
    """Ask every node's supervisor to stop: ``soft``, ``stop`` or ``kill``.

    A file in the node's ``requests`` folder: it works over NFS, and twice is once.

    Raises:
        SessionError: the session directory cannot be written.
    """
    leave_request(paths, mode, requested_by, "to stop")


def request_stacks(paths: SessionPaths, requested_by: str) -> None:
    """Ask every node's supervisor for the Python stacks of its ranks.

    A ``stacks`` record of the supervisor's tells where in which file each rank writes them.

    Raises:
        SessionError: the session directory cannot be written.
    """
    leave_request(paths, "stacks", requested_by, "for stacks")


def leave_request(
    paths: SessionPaths, mode: str, requested_by: str, what: str, **more: str
) -> None:
    """Leave a request for every node's supervisor; `what` is for the message of an error.

    Raises:
        SessionError: the session directory cannot be written.
    """
    name = f"{mode}-{os.getpid()}.json"
    if not paths.nodes():
        raise SessionError(f"cannot ask {paths.id} {what}: {paths.root} has been deleted")
    for node in paths.nodes():
        try:
            node.requests.mkdir(mode=0o700, exist_ok=True)
            write_json(node.requests / name, {"mode": mode, "requested_by": requested_by, **more})
        except OSError as error:
            raise SessionError(f"cannot ask {paths.id} {what}: {error.strerror}") from None


def iter_requests(node: NodePaths) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The whole requests that wait for a node's supervisor."""
    try:
        files = sorted(node.requests.glob("[!.]*.json"))
    except OSError:
        return
    for file in files:
        if request := read_json(file):
            yield file, request


def told_warnings(paths: SessionPaths) -> list[str]:
    """What was found at the start that may go wrong, a line each."""
    found = (read_json(paths.meta) or {}).get("warnings")
    return [line for line in found if isinstance(line, str)] if isinstance(found, list) else []


def describe(paths: SessionPaths) -> dict[str, Any]:
    """``session.json``, or what can be said without it; then ``problem`` says so in words."""
    bare = {"schema": SCHEMA, "id": paths.id, "name": paths.id}
    return read_json(paths.meta) or {**bare, "problem": "its session.json is missing or damaged"}
