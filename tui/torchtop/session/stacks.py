"""Python stacks of ranks: asking for them, and telling the user's own lines from the rest."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from torchtop.session.locks import is_locked
from torchtop.session.paths import (
    NodePaths,
    SessionError,
    SessionPaths,
    describe,
    request_stacks,
)
from torchtop.session.records import Record
from torchtop.session.tail import Tail

_ANSWER_S = 6.0
"""A supervisor looks for requests four times a second, and answers no two within one second."""

_AGAIN_S = 1.5
"""After this long without an answer it is asked again: it may have answered somebody else."""

_DUMP_S = 2.0
"""What a rank has at least from the supervisor's answer on, which may have come very late."""

_STILL_S = 0.25
"""A file that has not grown for this long is whole: faulthandler writes within milliseconds."""

_POLL_S = 0.05
_LONG = 48
"""Characters of a path beyond which a terminal of 80 columns would cut off what is called."""

_MOST_BYTES = 1 << 20
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d[\w.]*/|^<frozen ")
_OURS = re.compile(r"/stage/(?:_torchtop/|rank\.py$)")


@dataclass(frozen=True)
class Frame:
    """One call.

    Attributes:
        where: file and line, the file as short as it is clear.
        function: the function's name.
        own: whether it is the user's code, not a library's.
    """

    where: str
    function: str
    own: bool

    def __str__(self) -> str:
        """In a line: of a long path the last two parts, which name a file well enough."""
        parts = self.where.split("/")
        long = len(self.where) > _LONG and len(parts) > 3
        where = "/".join(["...", *parts[-2:]]) if long else self.where
        return f"{where} in {self.function}"


@dataclass(frozen=True)
class RankStack:
    """What one rank does, innermost call first; torchtop's own frames are left out.

    Attributes:
        rank: its number.
        frames: of its main thread.
        others: of each other thread the innermost call of the user's, or else of any.
        problem: why there are no frames, or None.
    """

    rank: int
    frames: tuple[Frame, ...] = ()
    others: tuple[Frame, ...] = ()
    problem: str | None = None


def take(paths: SessionPaths, requested_by: str, answer_s: float = _ANSWER_S) -> list[RankStack]:
    """Have every rank of a live session write its stacks, and read them.

    Args:
        paths: the session.
        requested_by: who asks, for the record.
        answer_s: how long to wait for the supervisors' answers; the ranks that they have asked
            then have the rest of that time, at least two seconds. What comes later is told as
            missing.

    Raises:
        SessionError: the session does not run, or nobody answers.
    """
    nodes = [node for node in paths.nodes() if is_locked(node.lock)]
    if not nodes:
        raise SessionError(f"{paths.id} is not running: its ranks have no stacks to show")
    until = time.monotonic() + answer_s
    answers = _answers(paths, nodes, requested_by, until)
    if not answers:
        raise SessionError(f"the supervisor of {paths.id} has not answered within {answer_s:.0f} s")
    cwd = str(describe(paths).get("cwd") or "")
    found = [RankStack(rank, problem=_CANNOT_ASK) for told in answers for rank in _silent(told)]
    asked = [entry for told in answers for entry in _asked(told)]
    texts = _texts(paths, asked, max(until, time.monotonic() + _DUMP_S))
    found += [_stack(entry["rank"], texts.get(entry["rank"], ""), cwd) for entry in asked]
    return sorted(found, key=lambda stack: stack.rank)


_CANNOT_ASK = "it cannot be asked: the script has taken the handler of SIGUSR2 away"
_NO_ANSWER = "it does not answer: it is stopped, or waits in the kernel"


def _answers(
    paths: SessionPaths, nodes: list[NodePaths], requested_by: str, until: float
) -> list[Record]:
    """Each node's ``stacks`` record that comes after the request."""
    tails = {node.root.name: Tail(node.events) for node in nodes}
    for tail in tails.values():
        tail.poll()
    answers: dict[str, Record] = {}
    ask_at = 0.0
    while len(answers) < len(tails) and (now := time.monotonic()) < until:
        if now >= ask_at:
            request_stacks(paths, requested_by)
            ask_at = now + _AGAIN_S
        for name, tail in tails.items():
            told = [record for record in tail.poll() if record["kind"] == "stacks"]
            if told:
                answers[name] = told[-1]
        time.sleep(_POLL_S)
    return list(answers.values())


def _asked(told: Record) -> Iterator[Mapping[str, Any]]:
    """The well-formed entries of a ``stacks`` record; none leads out of the session."""
    for entry in told.get("ranks") or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("rank"), int):
            continue
        file = entry.get("file")
        inside = isinstance(file, str) and PurePath(file).parts[:1] == ("ranks",)
        if inside and ".." not in PurePath(str(file)).parts and isinstance(entry["offset"], int):
            yield entry


def _silent(told: Record) -> list[int]:
    return [rank for rank in told.get("silent") or () if isinstance(rank, int)]


def _texts(paths: SessionPaths, asked: list[Mapping[str, Any]], until: float) -> dict[int, str]:
    """What each rank has written, once nothing more comes or the time is over."""
    sizes: dict[int, int] = {}
    still_since = time.monotonic()
    while True:
        now = time.monotonic()
        texts = {entry["rank"]: _read(paths, entry) for entry in asked}
        if sizes != (sizes := {rank: len(text) for rank, text in texts.items()}):
            still_since = now
        if now >= until or (all(sizes.values()) and now - still_since >= _STILL_S):
            return texts
        time.sleep(_POLL_S)


def _read(paths: SessionPaths, entry: Mapping[str, Any]) -> str:
    try:
        with (paths.root / entry["file"]).open("rb") as file:
            file.seek(entry["offset"])
            data: bytes = file.read(_MOST_BYTES)
    except OSError:
        return ""
    return data.decode("utf-8", "replace")


def _stack(rank: int, text: str, cwd: str) -> RankStack:
    """A rank's stack from what faulthandler wrote."""
    threads = list(parse(text, cwd))
    if not threads:
        return RankStack(rank, problem=_NO_ANSWER)
    # Only the main thread has the script below it; without one, the thread that took the signal.
    main = next((t for t in threads if t.is_main), None) or next(
        (t for t in threads if t.is_current), threads[0]
    )
    others = [_most_telling(t.frames) for t in threads if t is not main and not t.is_ours]
    return RankStack(rank, main.frames, tuple(frame for frame in others if frame))


@dataclass(frozen=True)
class Thread:
    """One thread of a dump, innermost call first."""

    frames: tuple[Frame, ...] = ()
    is_current: bool = False
    is_main: bool = False
    is_ours: bool = False


def parse(text: str, cwd: str = "") -> Iterator[Thread]:
    """The threads of a dump of faulthandler's.

    Args:
        text: the dump; lines that are no frames are passed over.
        cwd: files below it are named from there.
    """
    thread: Thread | None = None
    for line in text.splitlines():
        if head := _THREAD.match(line):
            if thread is not None:
                yield thread
            thread = Thread(is_current=head[1] != "Thread")
        elif thread is not None and (found := _FRAME.match(line)):
            file, number, function = found.groups()
            if is_ours(file):
                is_main = file.endswith("/stage/rank.py")
                thread = replace(thread, is_ours=not is_main, is_main=thread.is_main or is_main)
            else:
                frame = Frame(f"{shorten(file, cwd)}:{number}", function, not is_library(file))
                thread = replace(thread, frames=(*thread.frames, frame))
    if thread is not None:
        yield thread


def is_ours(file: str) -> bool:
    """Whether a file of a traceback or a stack is torchtop's, below a session's ``stage``."""
    return _OURS.search(file) is not None


def is_library(file: str) -> bool:
    """Whether a file is of Python or of an installed package, not the user's."""
    return _LIBRARY.search(file) is not None


def shorten(file: str, cwd: str) -> str:
    """A file's name from the working directory, or from where packages lie."""
    if cwd and file.startswith(cwd.rstrip("/") + "/"):
        return file[len(cwd.rstrip("/")) + 1 :]
    package = re.search(r".*/(?:(?:site|dist)-packages|python\d[\w.]*|stage/fallback)/", file)
    return file[package.end() :] if package else file


def _most_telling(frames: Iterable[Frame]) -> Frame | None:
    frames = list(frames)
    return next((frame for frame in frames if frame.own), frames[0] if frames else None)


@dataclass(frozen=True)
class Line:
    """A line of the told stacks.

    Attributes:
        kind: ``rank``, ``own``, ``library``, ``note`` or ``blank``.
        text: foreign text, as it is.
    """

    kind: str
    text: str = ""


def tell(stacks: Iterable[RankStack], seen: Mapping[int, str] | None = None) -> list[Line]:
    """Stacks as lines: for each rank the user's own calls first, innermost on top.

    Args:
        stacks: of all ranks.
        seen: what else is known of a rank, such as where it was last seen.
    """
    lines: list[Line] = []
    for stack in stacks:
        if lines:
            lines.append(Line("blank"))
        known = (seen or {}).get(stack.rank)
        lines.append(Line("rank", f"rank {stack.rank}" + (f": {known}" if known else "")))
        if stack.problem:
            lines.append(Line("note", stack.problem))
        own = [frame for frame in stack.frames if frame.own]
        if len(own) > 1:
            lines.append(Line("note", "your own calls, the innermost first"))
        lines += [Line("own", str(frame)) for frame in own]
        inside = [frame for frame in stack.frames[: _depth(stack.frames)] if not frame.own]
        if inside:
            lines.append(Line("note", f"{_where(len(own))}, innermost call first"))
            lines += [Line("library", str(frame)) for frame in inside]
        if stack.others:
            many = len(stack.others)
            lines.append(Line("note", "another thread" if many == 1 else f"{many} other threads"))
            lines += [Line("own" if f.own else "library", str(f)) for f in stack.others]
    return lines


def _where(own: int) -> str:
    """Where calls of libraries lie, below so many of the user's."""
    if not own:
        return "in libraries alone"
    return f"within {'this call' if own == 1 else 'the first of these'}, in libraries"


def _depth(frames: tuple[Frame, ...]) -> int:
    """How many calls lie within the user's innermost one."""
    return next((i for i, frame in enumerate(frames) if frame.own), len(frames))
