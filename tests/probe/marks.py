"""Marker streams made by hand, and the steps that come of them."""

from __future__ import annotations

from typing import Any

from torchtop.probe.assemble import StepAssembler, row_of
from torchtop.probe.clock import Mark
from torchtop.session.records import PHASE_COLUMNS

MS = 1_000_000


def mark(
    code: str, host_ns: int, device_ns: int | None = None, lag_ns: int | None = None, **more: Any
) -> Mark:
    """A marker that the device has passed, if `device_ns` is given."""
    made = Mark()
    made.code, made.host_ns = code, host_ns
    for name, value in {"device_ns": device_ns, "lag_ns": lag_ns, **more}.items():
        setattr(made, name, value)
    return made


def passed(step: int) -> tuple[int, list[Mark]]:
    """A step of 700 microseconds and 8 samples: 100 microseconds in each phase."""
    codes = "B1 O0 O1 D0 D1 B0 BC B1"
    marks = [
        mark(code, step * MS + at, step * MS + at, 0)
        for at, code in zip(range(0, 800_000, 100_000), codes.split(), strict=True)
    ]
    marks[4].extra = (8, None)
    return step, marks


class Stream:
    """Markers at chosen intervals, fed to an assembler as they are made.

    The device's clock begins elsewhere than the host's and runs behind it by `lag_ns`.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.assembler = StepAssembler(lambda step, marks: self.rows.append(row_of(step, marks)))
        self.marks: list[Mark] = []
        self._device_ns = 0

    def mark(self, code: str, after_ms: float = 1.0, extra: Any = None, lag_ns: int = 0) -> None:
        """One marker, `after_ms` of device time after the last."""
        self._device_ns += round(after_ms * MS)
        host_ns = 7_000_000_000 + self._device_ns - lag_ns
        made = mark(code, host_ns, self._device_ns, lag_ns, width_ns=3_000, extra=extra)
        self.marks.append(made)
        self.assembler.add(made)

    def play(self, text: str, sync: Any = True) -> None:
        """Markers by their codes, each with the milliseconds that it takes: ``"D0:1 D1:5"``.

        ``B1`` carries `sync`, unless it is written ``B1!`` (True), ``B1-`` (False) or ``B1?``
        (None); ``D1`` carries 8 samples and no tokens.
        """
        for word in text.split():
            code, _, after = word.partition(":")
            told = {"!": True, "-": False, "?": None}.get(code[-1], sync)
            code = code.rstrip("!-?")
            extra = {"B1": told, "D1": (8, None)}.get(code)
            self.mark(code, float(after or 1), extra)

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps that were told."""
        return [row["step"] for row in self.rows]


def phases(row: dict[str, Any]) -> dict[str, float]:
    """The phases of a row that took time, in milliseconds."""
    return {name[: -len("_us")]: row[name] / 1000 for name in PHASE_COLUMNS if row[name]}


def total_us(row: dict[str, Any]) -> int:
    """The sum of a row's phases."""
    return sum(row[name] for name in PHASE_COLUMNS)
