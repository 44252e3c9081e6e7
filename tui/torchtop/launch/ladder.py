"""The stop ladder: which rung a stop is on, and when it goes to the next. No I/O, no clock.

soft   SIGTERM to the ranks alone. A SIGTERM to torchrun reaches the data-loader workers too, and a
       script that wants to save a checkpoint then fails on its dead loaders.
term   SIGTERM to torchrun, which ends its ranks and kills them at its own time limit.
sweep  torchrun has gone: SIGTERM to what is left of its tree.
kill   SIGKILL to torchrun and to everything below, again and again until nothing is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

TERM_MARGIN_S = 2.0
"""How much longer than its own time limit torchrun is given: it needs 0.4 s to end after its ranks
have gone (measured), and a loaded machine several times that."""

SWEEP_S = 2.0
"""How long what torchrun left behind may take over its SIGTERM."""

GIVE_UP_S = 5.0
"""After this long a SIGKILL has not worked: the process is in an uninterruptible wait."""


class Rung(IntEnum):
    """A rung of the ladder; a stop only ever goes up."""

    NONE = 0
    SOFT = 1
    TERM = 2
    SWEEP = 3
    KILL = 4


MODES = {"soft": Rung.SOFT, "stop": Rung.TERM, "kill": Rung.KILL}
"""The rung that each mode of a stop request asks for."""


@dataclass
class Ladder:
    """Where a stop stands.

    Attributes:
        soft_timeout_s: how long the ranks may take to end by themselves.
        shutdown_timeout_s: torchrun's own limit between SIGTERM and SIGKILL.
        rung: the present rung.
        since_s: when it was reached, in seconds of any monotonic clock.
    """

    soft_timeout_s: float
    shutdown_timeout_s: float
    rung: Rung = Rung.NONE
    since_s: float = 0.0

    def ask(self, rung: Rung, now_s: float) -> bool:
        """Go up to a rung; asking twice, or for a lower one, changes nothing.

        Returns:
            Whether this is a new rung, whose signals are to be sent now.
        """
        if rung <= self.rung:
            return False
        self.rung, self.since_s = rung, now_s
        return True

    def overdue(self, now_s: float) -> Rung | None:
        """The rung to go up to because the present one has taken too long, or None."""
        waited = now_s - self.since_s
        if self.rung is Rung.SOFT and waited >= self.soft_timeout_s:
            return Rung.TERM
        if self.rung is Rung.TERM and waited >= self.shutdown_timeout_s + TERM_MARGIN_S:
            return Rung.KILL
        if self.rung is Rung.SWEEP and waited >= SWEEP_S:
            return Rung.KILL
        return None

    def hopeless(self, now_s: float) -> bool:
        """Whether even SIGKILL has had its time."""
        return self.rung is Rung.KILL and now_s - self.since_s >= GIVE_UP_S
