"""How many bytes a rank's file may take: all there is to tell at first, and 100 MB a day later."""

from __future__ import annotations

_BURST_BYTES = 10e6
"""Full detail costs 3 to 5 kB/s: this is the first 40 to 80 minutes of it, which people watch."""

_BYTES_PER_S = 1000.0
"""86 MB a day; with the burst under 100."""

_REGAINED_BYTES = 5e6
"""So much must have been saved before there is full detail again, so that it does not flicker."""


class Allowance:
    """Decides whether a file is to be written sparingly.

    Args:
        now_s: the present, in seconds of any monotonic clock.
    """

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._sparing = False

    def is_spent(self, written: int, now_s: float) -> bool:
        """Whether to write sparingly from now on.

        Args:
            written: bytes in the file.
            now_s: the present.
        """
        left = _BURST_BYTES + _BYTES_PER_S * (now_s - self._since_s) - written
        self._sparing = left < (_REGAINED_BYTES if self._sparing else 0)
        return self._sparing
