"""What a sweep shall measure: its cells, made once and kept in ``plan.json``."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torchtop.session.paths import SessionError, read_json

SCHEMA = 1

Value = int | str
Placed = Callable[["Cell"], "Place"]


@dataclass(frozen=True)
class Settings:
    """How each cell is measured.

    Attributes:
        steps: steps a run; None for as many as take `seconds`.
        seconds: see `steps`.
        warmup: steps that are left out before.
        repeats: runs of a cell at most.
        spread: a cell whose runs lie within this share of their median (0..1) needs no more...
        enough: ...when it has had so many.
    """

    steps: int | None = None
    seconds: float = 10.0
    warmup: int = 20
    repeats: int = 5
    spread: float = 0.02
    enough: int = 3


@dataclass(frozen=True)
class Place:
    """Where a cell runs and what it has to do there.

    Attributes:
        nproc: processes; None where a command starts as many as it likes.
        parallel: ddp, dp, single, or None where the workload does not say.
        batch: samples in a step over all devices, or None where the workload does not say.
        skip: why this machine cannot do it, one line; None where it can.
    """

    nproc: int | None
    parallel: str | None = None
    batch: int | None = None
    skip: str | None = None


@dataclass(frozen=True)
class Cell:
    """One cell of the table; see ``cell`` in `torchtop.session.sweeps`.

    Attributes:
        id: short text, unique in the sweep.
        label: the same for people.
        role: ``asked`` or ``reference``.
        axes: what sets it apart from the others.
        devices: GPUs, or ranks on a CPU; None where a command decides that.
        options: all options that are set, by name.
        python: path of the interpreter.
        place: where it runs.
        base: id of the cell that its speed-up is against; None where it is that itself.
        reference: id of the cell with its batch for each device on as few devices as the base has.
    """

    id: str
    label: str
    role: str
    axes: Mapping[str, Value]
    devices: int | None
    options: Mapping[str, str]
    python: str
    place: Place = Place(1)
    base: str | None = None
    reference: str | None = None

    @property
    def batch_each(self) -> float | None:
        """Samples in a step of one device; None where not known."""
        if self.place.batch is None or self.devices is None:
            return None
        return self.place.batch / self.devices


@dataclass(frozen=True)
class Axis:
    """What cells differ in: a name, its values, and how each is shown."""

    name: str
    values: tuple[Value, ...]
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A sweep as it was asked for.

    Attributes:
        workload: its name in the catalog.
        device: cuda or cpu.
        cwd: where the command was typed.
        command: its words.
        axes: in the order of the command.
        fixed: options that all cells share.
        cells: those that were asked for, and then the references.
        settings: how each is measured.
    """

    workload: str
    device: str
    cwd: str
    command: tuple[str, ...]
    axes: tuple[Axis, ...]
    fixed: Mapping[str, str]
    cells: tuple[Cell, ...]
    settings: Settings = field(default_factory=Settings)

    def cell(self, name: str) -> Cell:
        """The cell of that id."""
        return next(cell for cell in self.cells if cell.id == name)

    @property
    def fingerprint(self) -> str:
        """The same for plans that ask for the same, whatever the machine can do of it."""
        asked = [c for c in self.cells if c.role == "asked"]
        value = [
            self.workload,
            self.device,
            self.cwd,
            asdict(self.settings),
            [(c.id, c.devices, sorted(c.options.items()), c.python) for c in asked],
        ]
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def load(cls, path: Path) -> Plan:
        """The plan in a file.

        Raises:
            SessionError: there is none that can be read.
        """
        value = read_json(path)
        try:
            return cls(
                workload=str(value["workload"]),  # type: ignore[index]
                device=str(value["device"]),  # type: ignore[index]
                cwd=str(value["cwd"]),  # type: ignore[index]
                command=tuple(value["command"]),  # type: ignore[index]
                axes=tuple(_axis(item) for item in value["axes"]),  # type: ignore[index]
                fixed=dict(value["fixed"]),  # type: ignore[index]
                cells=tuple(_cell(item) for item in value["cells"]),  # type: ignore[index]
                settings=Settings(**value["settings"]),  # type: ignore[index]
            )
        except (TypeError, KeyError, ValueError, AttributeError):
            raise SessionError(f"{path} is damaged, or of another torchtop: start anew") from None


def _axis(value: Mapping[str, Any]) -> Axis:
    return Axis(value["name"], tuple(value["values"]), tuple(value["shown"]))


def _cell(value: Mapping[str, Any]) -> Cell:
    return Cell(**{**value, "place": Place(**value["place"])})


def make_cells(
    counts: Axis, options: Sequence[Axis], pythons: Axis, fixed: Mapping[str, str], placed: Placed
) -> tuple[Cell, ...]:
    """All combinations, and the references that explain their scaling.

    Args:
        counts: ``gpus`` or ``nproc``: numbers of devices; none where a command decides that.
        options: options of the workload, and the values of each.
        pythons: paths of interpreters.
        fixed: options that all cells share.
        placed: says where a cell runs; may raise where it makes no sense on any machine.
    """
    varied = [axis for axis in (counts, *options, pythons) if len(axis.values) > 1]
    cells = []
    known = [axis for axis in (*options, pythons, counts) if axis.values]
    for values in itertools.product(*(axis.values for axis in known)):
        chosen = dict(zip((axis.name for axis in known), values, strict=True))
        devices = int(chosen[counts.name]) if counts.values else None
        axes = {axis.name: chosen[axis.name] for axis in varied}
        cell = Cell(
            id=",".join(f"{name}={value}" for name, value in axes.items()) or "all",
            label=_label(axes, varied, counts, devices),
            role="asked",
            axes=axes,
            devices=devices,
            options={**fixed, **{axis.name: str(chosen[axis.name]) for axis in options}},
            python=str(chosen[pythons.name]),
        )
        cells.append(replace(cell, place=placed(cell)))
    return _with_references(cells, placed)


def _label(
    axes: Mapping[str, Value], varied: Sequence[Axis], counts: Axis, devices: int | None
) -> str:
    parts = [count(counts.name, devices)] if counts.name in axes or not axes else []
    for axis in varied:
        if axis.name in axes and axis is not counts:
            text = dict(zip(axis.values, axis.shown or map(str, axis.values), strict=False))
            shown = text[axes[axis.name]]
            parts.append(shown if axis.name == "python" else f"{axis.name}={shown}")
    return ", ".join(parts)


def count(name: str, devices: int | None) -> str:
    """A number of devices in words: ``2 GPUs``, ``1 rank``; None is a command's own."""
    if devices is None:
        return "its own ranks"
    what = "GPU" if name == "gpus" else "rank"
    return f"{devices} {what}{'' if devices == 1 else 's'}"


def _with_references(asked: Sequence[Cell], placed: Placed) -> tuple[Cell, ...]:
    """Tell each cell its base, and add what is missing between the two."""
    cells = {cell.id: cell for cell in asked}
    for cell in asked:
        base = _base(cell, asked)
        if base is None:
            continue
        reference = _reference(cell, base, cells.values(), placed)
        if reference is not None:
            cells.setdefault(reference.id, reference)
        told = None if reference is None else reference.id
        cells[cell.id] = replace(cell, base=base.id, reference=told)
    return tuple(cells.values())


def _group(cell: Cell) -> tuple[Any, ...]:
    """What must be alike in cells whose throughput is compared as scaling."""
    options = {k: v for k, v in cell.options.items() if k not in ("batch", "batch_per_gpu")}
    return tuple(sorted(options.items())), cell.python


def _base(cell: Cell, asked: Sequence[Cell]) -> Cell | None:
    """The cell with the fewest devices that differs in nothing else; None for that one itself."""
    same = [
        other
        for other in asked
        if other.options == cell.options
        and other.python == cell.python
        and other.place.skip is None
    ]
    first = min(same, key=lambda other: other.devices or 0, default=None)
    return None if first is None or (first.devices or 0) >= (cell.devices or 0) else first


def _reference(cell: Cell, base: Cell, known: Iterable[Cell], placed: Placed) -> Cell | None:
    """As many devices as the base has, with the batch for each that the cell has."""
    each = cell.batch_each
    if each is None or base.batch_each is None or cell.place.skip is not None:
        return None
    if each == base.batch_each or each != int(each):
        return None
    for other in known:
        alike = other.devices == base.devices and other.batch_each == each
        if alike and other.place.skip is None and _group(other) == _group(cell):
            return other
    options = {k: v for k, v in cell.options.items() if k != "batch"}
    axes = {**{k: v for k, v in base.axes.items() if k != "batch"}, "batch_per_gpu": int(each)}
    shared = [part for part in base.label.split(", ") if not part.startswith("batch")]
    made = Cell(
        id=",".join(f"{name}={value}" for name, value in axes.items()),
        label=", ".join([*shared, f"batch_per_gpu={int(each)}"]),
        role="reference",
        axes=axes,
        devices=base.devices,
        options={**options, "batch_per_gpu": str(int(each))},
        python=cell.python,
    )
    return replace(made, place=placed(made))
