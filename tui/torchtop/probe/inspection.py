"""One step, looked at for calls that make the host wait for the device: only when it is asked for.

torch warns of most such calls where its sync debug mode is on. That is turned on for one step, and
its warnings are taken out of Python's hands before anybody sees them. What torch does not warn of
(waiting for the whole device, for an event, in a barrier) is wrapped for that step. Copies from
memory that is not pinned, called non-blocking, are seen by neither.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import threading
import warnings
from collections import Counter, deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

_WARNING = "called a synchronizing CUDA operation"
_NOTICE = "Synchronization debug mode is a prototype feature"
"""What torch says when the mode is first set."""

_WARN = 1
_TEXT_CHARS = 120
_MOST_CALLS = 100

NO_CUDA = "nothing to inspect: no CUDA"
WATCHED = "the script uses torch's sync debug mode itself: it is left as it is"
OVER = "the run ended before the step did"

_thread = threading.get_ident


class Place(NamedTuple):
    """A call in a source file.

    Attributes:
        columns: where in the line the call begins and ends, in bytes; None where not known.
    """

    file: str
    line: int
    function: str
    columns: Optional[Tuple[int, int]]


class Found(NamedTuple):
    """A waiting call: the script's own line, a library's within it, and what it called."""

    place: Place
    library: Optional[Place]
    call: Optional[str]


class Inspection:
    """Looks at one step when it is asked to, and leaves everything as it was.

    Args:
        torch: the module.
        cuda: whether this rank computes on a GPU.
        tell: called with the fields of an ``inspected`` record; `fields` makes them complete.
    """

    def __init__(self, torch: Any, cuda: bool, tell: Callable[[Dict[str, Any]], None]) -> None:
        self._torch = torch
        self._cuda = cuda
        self._tell = tell
        self._asked: Deque[Dict[str, Any]] = deque()
        self._step: Optional[int] = None
        self._thread: Optional[int] = None
        self._inside = False
        self._found: "Counter[Found]" = Counter()
        self._undo: List[Callable[[], None]] = []

    @property
    def wanted(self) -> bool:
        """Whether there is a step to look at, or one is looked at."""
        return bool(self._asked)

    def ask(self, request: Dict[str, Any]) -> None:
        """Look at the next step, or at the one that is looked at; on any thread."""
        self._asked.append(request)
        if not self._cuda:
            self._end(NO_CUDA)

    def step_begins(self, step: int) -> None:
        """On the training thread, at the beginning of each step while one is wanted."""
        if self._step is not None:
            self._end(None)
        elif self._torch._C._cuda_get_sync_debug_mode():
            self._end(WATCHED)
        else:
            self._step, self._thread = step, _thread()
            try:
                self._watch()
            except Exception as error:
                self._end("it failed: {}: {}".format(type(error).__name__, error))

    def stop(self) -> None:
        """Put everything back, and look no more; on any thread."""
        self._end(OVER)

    def abandon(self) -> None:
        """In a forked child: everything as it was, and nothing is told."""
        self._asked.clear()
        self._end(None)

    def _end(self, problem: Optional[str]) -> None:
        self._put_back()
        step, self._step = self._step, None
        found = self._found.most_common(_MOST_CALLS)
        self._found.clear()
        while self._asked:
            request = self._asked.popleft()
            told = {"id": request.get("id"), "requested_by": request.get("requested_by")}
            self._tell({**told, "step": step, "calls": found, "problem": problem})

    def _watch(self) -> None:
        torch = self._torch
        self._take_warnings()
        mode, set_mode = torch._C._cuda_get_sync_debug_mode, torch._C._cuda_set_sync_debug_mode
        # Unless the script has turned on another meanwhile.
        self._undo.append(lambda: set_mode(0) if mode() == _WARN else None)
        set_mode(_WARN)
        distributed = torch.distributed
        for owner, name, called in (
            (torch.cuda, "synchronize", "torch.cuda.synchronize"),
            (torch.cuda.Stream, "synchronize", "torch.cuda.Stream.synchronize"),
            (torch.cuda.Event, "synchronize", "torch.cuda.Event.synchronize"),
            (getattr(torch, "accelerator", None), "synchronize", "torch.accelerator.synchronize"),
            (distributed, "barrier", "torch.distributed.barrier"),
        ):
            if owner is not None and name in vars(owner):
                self._wrap(owner, name, called)

    def _put_back(self) -> None:
        undo, self._undo = self._undo, []
        for step in reversed(undo):
            step()

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        """Put something else into its place, until `_put_back`, if it is still there then."""
        old = vars(owner)[name]

        def back() -> None:
            if vars(owner).get(name) is new:
                setattr(owner, name, old)

        self._undo.append(back)
        setattr(owner, name, new)

    def _wrap(self, owner: Any, name: str, called: str) -> None:
        original = vars(owner)[name]

        @functools.wraps(original)
        def waits(*args: Any, **kwargs: Any) -> Any:
            if _thread() != self._thread or self._inside or self._step is None:
                return original(*args, **kwargs)
            self._saw(called)
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False

        self._replace(owner, name, waits)

    def _take_warnings(self) -> None:
        """Have torch's warning reach nobody.

        A filter that comes first sees it and drops it. Where the script itself puts a filter in
        front in that step, ours moves up; where it takes all of them away, the text is caught when
        it is about to be shown.
        """
        entry: Any = ("ignore", _Sieve(self), UserWarning, None, 0)
        warnings.filters.insert(0, entry)  # type: ignore[attr-defined]

        def remove() -> None:
            if entry in warnings.filters:
                warnings.filters.remove(entry)  # type: ignore[attr-defined]

        self._undo.append(remove)
        module: Any = sys.modules[warnings.simplefilter.__module__]
        add, show = getattr(module, "_add_filter", None), vars(warnings).get("_showwarnmsg")

        def add_filter(*args: Any, **kwargs: Any) -> None:
            add(*args, **kwargs)  # type: ignore[misc]
            remove()
            warnings.filters.insert(0, entry)  # type: ignore[attr-defined]

        def showwarnmsg(message: Any) -> None:
            if not self.take(str(message.message)):
                show(message)  # type: ignore[misc]

        if add is not None:
            self._replace(module, "_add_filter", add_filter)
        if show is not None:
            self._replace(warnings, "_showwarnmsg", showwarnmsg)

    def take(self, text: str) -> bool:
        """Whether a warning is of this inspection's making; then it is counted."""
        if not text.startswith((_WARNING, _NOTICE)) or self._step is None:
            return False
        if text.startswith(_WARNING) and _thread() == self._thread and not self._inside:
            self._saw(None)
        return True

    def _saw(self, called: Optional[str]) -> None:
        place, library = _caller(self._torch)
        self._found[Found(place, library, called)] += 1


class _Sieve:
    """Stands in a warning filter for the pattern of a message."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection

    def match(self, text: str) -> bool:
        """Whether the filter is for this message."""
        return self._inspection.take(text)


def _caller(torch: Any) -> Tuple[Place, Optional[Place]]:
    """The innermost line of the script's own, and that of a library other than torch within it.

    Where there is none of the script's, that of the library; else of torch.
    """
    ours, of_torch, standard = (
        str(Path(m).parent) for m in (__file__, torch.__file__, os.__file__)
    )
    first = library = None
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(ours):
            if first is None:
                first = _place(frame)
            installed = "site-packages" in file or "dist-packages" in file
            if not installed and not file.startswith((standard, of_torch, "<frozen")):
                return _place(frame), library
            if library is None and installed and not file.startswith(of_torch):
                library = _place(frame)
        frame = frame.f_back
    return library or first or Place("?", 0, "?", None), None


def _place(frame: Any) -> Place:
    code, columns = frame.f_code, None
    if hasattr(code, "co_positions"):  # Python 3.11 and later
        for at, (line, end, begins, ends) in enumerate(code.co_positions()):
            if at == frame.f_lasti // 2:
                whole = line == end and begins is not None and ends is not None
                columns = (begins, ends) if whole else None
                break
    return Place(code.co_filename, frame.f_lineno, code.co_name, columns)


def fields(told: Dict[str, Any]) -> Dict[str, Any]:
    """What `Inspection` told, with the lines' text. Reads files: for the writer's thread."""
    calls = [
        {
            **_with_text(found.place),
            "count": count,
            "call": found.call,
            "library": None if found.library is None else _with_text(found.library),
        }
        for found, count in told["calls"]
    ]
    return {**told, "calls": calls}


def _with_text(place: Place) -> Dict[str, Any]:
    text = linecache.getline(place.file, place.line)
    if place.columns is not None:
        # Columns count bytes.
        text = (
            text.encode("utf-8", "replace")[slice(*place.columns)].decode("utf-8", "replace")
            or text
        )
    return {
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "text": text.strip()[:_TEXT_CHARS] or None,
    }
