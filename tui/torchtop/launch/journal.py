"""The supervisor's records, written so that a full disk cannot end the training."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any

from torchtop.session.records import Appender

_COMPLAINTS = 5


class Journal:
    """An `Appender` whose failures are printed, the first few times, and otherwise passed over.

    Args:
        events: the supervisor's record file.
    """

    def __init__(self, events: Appender) -> None:
        self._events = events
        self._complaints = 0

    def write(self, kind: str, mono_ns: int | None = None, **fields: Any) -> None:
        """Append one record, if that is possible."""
        try:
            self._events.write(kind, mono_ns=mono_ns, **fields)
        except OSError:
            self.complain(f"a {kind} record was lost")

    def complain(self, what: str) -> None:
        """Print the exception that is being handled to the supervisor's own log."""
        self._complaints += 1
        if self._complaints <= _COMPLAINTS:
            with contextlib.suppress(OSError):
                print(f"torchtop: {what}:", flush=True)
                traceback.print_exc()
