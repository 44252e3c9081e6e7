"""Calls that may never come back, on a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class DriverSilentError(Exception):
    """The driver has not answered in time, now or on an earlier call that is still out."""


class Guard:
    """Runs one call at a time on a daemon thread, and stops waiting after a limit.

    A call into the driver can hang for ever in the kernel, where no signal ends it. The thread is
    then left behind; once its call does come back its late answer is dropped and calls work again.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._out = False
        threading.Thread(target=self._serve, name="driver calls", daemon=True).start()

    def call(self, work: Callable[[], T], limit_s: float) -> T:
        """What `work()` returns.

        Args:
            work: runs on the guard's thread.
            limit_s: seconds to wait for it.

        Raises:
            DriverSilentError: no answer within the limit, or an earlier call is still out.
            Exception: whatever `work` raises.
        """
        if self._out:
            try:
                self._answers.get_nowait()
            except queue.Empty:
                raise DriverSilentError from None
        self._calls.put(work)
        self._out = True
        try:
            value, error = self._answers.get(timeout=limit_s)
        except queue.Empty:
            raise DriverSilentError from None
        self._out = False
        if error is not None:
            raise error
        result: T = value
        return result

    def _serve(self) -> None:
        while True:
            work = self._calls.get()
            try:
                self._answers.put((work(), None))
            except Exception as error:
                self._answers.put((None, error))
