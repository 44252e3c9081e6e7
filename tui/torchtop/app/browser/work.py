"""What the browser has read and written for it, on a thread: disks may be slow or far away."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from textual.message import Message

from torchtop.app.browser.messages import SessionsCompared, SessionsListed
from torchtop.app.controller import Controller
from torchtop.app.messages import Told
from torchtop.session.baselines import mark, read_baselines, unmark
from torchtop.session.compare import compare
from torchtop.session.load import load_paths
from torchtop.session.overview import Overview
from torchtop.session.paths import SessionError, SessionPaths
from torchtop.session.sides import Side

_EVERY_S = 2.0
"""Seconds between two looks at the list."""


class Worker(threading.Thread):
    """Lists the sessions again and again, and does in between what it is asked to.

    A daemon: a hanging file system must not keep the viewer from leaving.

    Args:
        controller: knows the sessions.
        post: takes messages; called on this thread.
    """

    def __init__(self, controller: Controller, post: Callable[[Message], object]) -> None:
        super().__init__(name="torchtop-browser", daemon=True)
        self._controller, self._post = controller, post
        self._asked: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._overview = Overview()
        self._told = ""

    def run(self) -> None:
        """List, wait for a wish, and list again."""
        ended = False
        while not ended:
            self._guard(self._list)
            try:
                wish = self._asked.get(timeout=_EVERY_S)
            except queue.Empty:
                continue
            ended = wish is None
            if wish is not None:
                self._told = ""  # a wish is answered, also when the answer is the same again
                self._guard(wish)

    def _list(self) -> None:
        entries = self._overview.look(self._controller.sessions())
        self._post(SessionsListed(tuple(entries), read_baselines()))

    def compare(self, first: Path, second: Path) -> None:
        """Compare two sessions."""

        def wish() -> None:
            runs = [load_paths(SessionPaths(root)) for root in (first, second)]
            sides = [Side(letter, (run,)) for letter, run in zip("AB", runs, strict=True)]
            self._post(SessionsCompared(compare(sides)))

        self._asked.put(wish)

    def mark(self, session: Path) -> None:
        """Make a session the baseline of its workload."""

        def wish() -> None:
            made = mark(load_paths(SessionPaths(session)))
            self._post(Told(f"{made.name} is the baseline of {made.workload}"))

        self._asked.put(wish)

    def unmark(self, workload: str) -> None:
        """Leave a workload without a baseline."""

        def wish() -> None:
            unmark(workload)
            self._post(Told(f"{workload} has no baseline any more"))

        self._asked.put(wish)

    def end(self) -> None:
        """Stop soon; does not wait."""
        self._asked.put(None)

    def _guard(self, work: Callable[[], object]) -> None:
        """Do something; what goes wrong is told once, and the thread goes on."""
        told = ""
        try:
            work()
        except SessionError as error:
            told = str(error)
        except Exception as error:
            told = f"cannot read the sessions: {type(error).__name__}: {error}"
        if told and told != self._told:
            self._told = told
            self._post(Told(told, error=True))
