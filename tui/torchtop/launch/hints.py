"""What a user should know of a run and would not see: told once, as an event.

No verdict: these are about what is run, not about where its time goes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torchtop.launch import processes
from torchtop.launch.journal import Journal
from torchtop.launch.plain_text import plain
from torchtop.launch.processes import Process
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.stage import SITE
from torchtop.session.alone import is_alone
from torchtop.session.brief import brief
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Record
from torchtop.session.tail import Tail

_EVERY_S = 2.0
_LOOKED_INTO_FOR_S = 120.0
"""How long after the start processes that train unseen are looked for."""

_SPAWNS = re.compile(
    r"\b(?:mp|multiprocessing|torch\.multiprocessing)\.(?:spawn|start_processes)\("
)
_SCRIPT_BYTES = 1 << 20
_NEEDLESS = ("steps", "totals", "beat", "scalars", "memory", "pause", "probe")
_ISOLATING = re.compile(rb"-[a-zA-Z]*[IES][a-zA-Z]*")


@dataclass
class _Trainer:
    """What one rank has told that a hint can come from."""

    tail: Tail
    header: Record = field(default_factory=dict)
    facts: dict[str, Record] = field(default_factory=dict)

    def poll(self) -> None:
        for record in self.tail.poll():
            if record["kind"] == "header":
                self.header = record
            elif record["kind"] == "facts":
                self.facts[str(record.get("subject"))] = record


class Hints:
    """Looks for what is worth a hint, and tells each once.

    Args:
        paths: the session.
        spec: what was started.
        events: where hints go.
    """

    def __init__(self, paths: SessionPaths, spec: LaunchSpec, events: Journal) -> None:
        self._paths = paths
        self._spec = spec
        self._events = events
        self._trainers: dict[str, _Trainer] = {}
        self._told: set[str] = set()
        self._looked_into: set[int] = set()
        self._began_s = time.monotonic()
        self._next_s = 0.0

    def begin(self) -> None:
        """Before the start: what the script says itself."""
        spec = self._spec
        script = Path(spec.cwd) / spec.target
        if spec.source in ("script", "file") and not spec.is_module and _spawns_ranks(script):
            name = script.name
            self._tell(
                "own_ranks",
                f"{name} seems to start ranks of its own (multiprocessing.spawn), and torchrun "
                f"starts it {_times(spec.nproc)}: run it as torchtop run -- python {name}",
            )

    def look(self, helpers: Collection[int]) -> None:
        """Now and then while it runs; `helpers` are pids of the supervisor's own."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _EVERY_S
        self._look_at_ranks()
        unseen = self._spec.source == "command" and not self._trainers
        if unseen and now - self._began_s < _LOOKED_INTO_FOR_S:
            self._look_for_unseen(processes.descendants(os.getpid(), without=helpers))

    def end(self, ended_well: bool) -> None:
        """When all has ended."""
        self._look_at_ranks()
        if ended_well and not self._trainers and "not_entered" not in self._told:
            self._tell("not_training", self._not_training())

    def _look_at_ranks(self) -> None:
        for file in self._paths.ranks.glob("*.jsonl"):
            if not file.name.endswith(".process.jsonl") and file.name not in self._trainers:
                self._trainers[file.name] = _Trainer(Tail(file, without=_NEEDLESS))
        if "alone" in self._told or not self._trainers:
            return
        for trainer in self._trainers.values():
            trainer.poll()
        newest = max(t.header.get("attempt") or 0 for t in self._trainers.values())
        ranks = [t for t in self._trainers.values() if t.header.get("attempt") == newest]
        if ranks and _train_alone(ranks):
            self._tell(
                "alone",
                f"each of the {len(ranks)} ranks trains alone: there is no DDP or FSDP, and "
                "nothing was synchronised between them, so that samples/s is the sum over as many "
                "models; wrap the model in DistributedDataParallel, or run one rank",
            )

    def _look_for_unseen(self, tree: Iterable[Process]) -> None:
        """Processes of a command that have torch and that the probe was kept out of."""
        site = os.fsencode(self._paths.stage / SITE)
        for process in tree:
            if process.pid in self._looked_into or not _has_torch(process.pid):
                continue
            self._looked_into.add(process.pid)
            if why := _kept_out(process.pid, site):
                self._tell("not_entered", f"{_shown(process.pid)} cannot be looked into: {why}")

    def _not_training(self) -> str:
        files = list(self._paths.ranks.glob("*.process.jsonl"))
        records = [record for file in files for record in Tail(file).poll()]
        told = "it ended without training: no backward pass was seen"
        if files and all(record["kind"] != "torch" for record in records):
            told = "it ended without training: it never imported torch"
        return told

    def _tell(self, what: str, message: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._events.write("hint", what=what, message=brief(plain(message), 500))


def _train_alone(ranks: list[_Trainer]) -> bool:
    world = ranks[0].header.get("world_size")
    whole = isinstance(world, int) and world >= 2 and len(ranks) >= world
    return whole and all(is_alone(rank.facts) for rank in ranks)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _spawns_ranks(script: Path) -> bool:
    try:
        with script.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return _SPAWNS.search(text) is not None


def _has_torch(pid: int) -> bool:
    return b"libtorch" in _read(pid, "maps")


def _kept_out(pid: int, site: bytes) -> str | None:
    """Why the probe is not in a process; None where it may be."""
    variables = _read(pid, "environ").split(b"\0")
    path = next((v.partition(b"=")[2] for v in variables if v.startswith(b"PYTHONPATH=")), b"")
    if site not in path.split(b":"):
        return "the command sets PYTHONPATH anew; write PYTHONPATH=...:$PYTHONPATH"
    for word in _read(pid, "cmdline").split(b"\0")[1:]:
        if not word.startswith(b"-") or word in (b"-c", b"-m"):
            break
        if _ISOLATING.fullmatch(word):
            return f"python {os.fsdecode(word)} reads no PYTHONPATH"
    return None


def _shown(pid: int) -> str:
    words = [os.fsdecode(word) for word in _read(pid, "cmdline").split(b"\0") if word]
    name = brief(" ".join([Path(words[0]).name, *words[1:]]), 80) if words else "a process"
    return f"{name} (pid {pid})"


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
