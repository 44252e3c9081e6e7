"""Phases of the script's own: how much of a step lies in each."""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

from .clock import Mark


class OwnPhases:
    """Follows which own phases are open, from step to step.

    Nested ones count in each other, and one that goes on over the end of a step in both steps.
    """

    def __init__(self) -> None:
        self._open: Tuple[str, ...] = ()

    def of(self, marks: Sequence[Mark]) -> Optional[Dict[str, int]]:
        """Microseconds of a step by phase, on the device's clock.

        Args:
            marks: the step's markers, as `assemble.row_of` takes them; each step in turn.

        Returns:
            None where there are none, or the device's times are not known.
        """
        cuts = [mark for mark in marks[1:] if mark.code in ("P0", "P1")]
        stack = cuts[0].extra[0] if cuts else self._open
        if cuts:
            self._open = cuts[-1].extra[1]
        if not cuts and not stack:
            return None
        spent: Dict[str, int] = {}
        at = marks[0].device_ns
        for mark in (*cuts, marks[-1]):
            if at is None or mark.device_ns is None:
                return None
            for name in set(stack):
                spent[name] = spent.get(name, 0) + mark.device_ns - at
            at = mark.device_ns
            if mark.code in ("P0", "P1"):
                stack = mark.extra[1]
        return {name: ns // 1000 for name, ns in spent.items()}
