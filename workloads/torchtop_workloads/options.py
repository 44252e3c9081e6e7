"""One option of a built-in workload: its kind, its default, and how a person writes its value.

Standard library only: a launcher reads the catalog without loading torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Union

# Evaluated, also by the older Pythons that other interpreters may be.
Value = Union[bool, int, float, str]  # noqa: UP007

_KINDS = {"int": "a whole number", "float": "a number"}
_SWITCH = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}


@dataclass(frozen=True)
class Option:
    """One option of a workload.

    Attributes:
        name: an identifier (``pin_memory``); on a command line also with dashes.
        type: ``int``, ``float``, ``bool`` or ``str``.
        default: the value when it is not given; None where the help says what happens then.
        help: one line, with the unit.
        choices: the values allowed for a ``str``; empty means any.
        minimum: the smallest number allowed; None means any.
        cpu_default: the default on a CPU where it differs: sizes are scaled down there.
        per_rank: whether the default is for one rank and grows with the number of ranks.
    """

    name: str
    type: str
    default: Value | None
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    cpu_default: Value | None = None
    per_rank: bool = False

    @property
    def flag(self) -> str:
        """The option on a command line, such as ``--pin-memory``."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str) -> Value:
        """Read a value as a person writes it.

        Raises:
            ValueError: with one line that says what the value must be.
        """
        if self.type == "bool":
            return self._switch(text)
        if self.type == "str":
            return self._word(text)
        return self._number(text)

    def default_for(self, device: str, world_size: int) -> Value | None:
        """The default on a device type (``cuda`` or ``cpu``) for that many ranks."""
        value = self.default
        if device == "cpu" and self.cpu_default is not None:
            value = self.cpu_default
        if self.per_rank and isinstance(value, int):
            return value * world_size
        return value

    def default_text(self) -> str:
        """The default in words, for a help text; empty where the help says it already."""
        if self.default is None:
            return ""
        words = _shown(self.default)
        if self.cpu_default is not None:
            words += f" on a GPU, {_shown(self.cpu_default)} on a CPU"
        return words + (", for each rank" if self.per_rank else "")

    def _switch(self, text: str) -> bool:
        value = _SWITCH.get(text.strip().lower())
        if value is None:
            raise ValueError(f"{self.name} must be on or off, not {text!r}")
        return value

    def _word(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.name} must be {' or '.join(self.choices)}, not {text!r}")
        if not text:
            raise ValueError(f"{self.name} must not be empty")
        return text

    def _number(self, text: str) -> Value:
        wanted = _KINDS[self.type]
        try:
            value = int(text) if self.type == "int" else float(text)
        except ValueError:
            raise ValueError(f"{self.name} must be {wanted}, not {text!r}") from None
        if not math.isfinite(value):
            raise ValueError(f"{self.name} must be {wanted}, not {text!r}")
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"{self.name} must be at least {self.minimum:g}, not {text}")
        return value


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
