"""From the words of ``sweep`` to its plan, and from a cell of it to a launch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchtop.commands.errors import UsageError
from torchtop.commands.placement import Wish, place, visible_gpus
from torchtop.commands.request import (
    consent,
    find_entry,
    own_wish,
    refuse_for_a_command,
    workload_spec,
)
from torchtop.commands.text import safe
from torchtop.devices.facts import query_gpus
from torchtop.devices.model import GpuInventory
from torchtop.experiment.plan import Axis, Cell, Place, Plan, Settings, make_cells
from torchtop.experiment.runner import Limit
from torchtop.launch.catalog import Entry, load_catalog
from torchtop.launch.interpreter import Interpreter, inspect
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop_workloads.registry import Option, Value

_OF_THE_SWEEP = {"steps": "--steps", "seconds": "--seconds", "warmup": "--warmup", "epochs": ""}
"""Options of the built-in workloads that the sweep sets itself, and how."""


@dataclass(frozen=True)
class Machine:
    """What a cell is placed on.

    Attributes:
        entry: the workload.
        device: cuda or cpu.
        pythons: the interpreters, by path.
        gpus: how many GPUs can be used.
    """

    entry: Entry
    device: str
    pythons: dict[str, Interpreter]
    gpus: int

    def placed(self, cell: Cell) -> Place:
        """Where a cell runs, or why it cannot run here.

        Raises:
            UsageError: it makes no sense on any machine.
        """
        if self.entry.is_command or cell.devices is None:
            return Place(None, skip=self._too_few(cell))
        options = _values(self.entry, cell)
        cuda, known = self.device == "cuda", {option.name for option in self.entry.options}
        parallel = None
        if self.entry.builtin and "parallel" in known:
            parallel = str(options.get("parallel") or "ddp")
        nproc = cell.devices if parallel in ("ddp", None) else 1
        skip = self._mismatch(parallel, cell.devices, options) or self._missing(cell, options)
        if self._mismatch(parallel, cell.devices, options) or self.entry.builtin is None:
            return Place(nproc, parallel, None, skip)
        gpus = cell.devices if cuda else None
        try:
            self.entry.builtin.check(options, nproc, self.device, gpus)
        except ValueError as error:
            raise UsageError(f"{self.entry.name}, {cell.label}: {error}") from None
        batch, _ = self.entry.builtin.batch(options, nproc, self.device, gpus)
        return Place(nproc, parallel, batch, skip)

    def _mismatch(
        self, parallel: str | None, devices: int, options: dict[str, Value]
    ) -> str | None:
        """Combinations of a table that are no mistake, and cannot be run."""
        if parallel == "single" and devices > 1:
            return "parallel=single uses one device"
        if parallel == "dp" and devices > 1 and self.device != "cuda":
            return "DataParallel needs GPUs: on a CPU it is one process"
        if parallel == "dp" and options.get("compile"):
            return "DataParallel cannot be compiled"
        return None

    def _missing(self, cell: Cell, options: dict[str, Value]) -> str | None:
        """What this machine or an interpreter on it lacks."""
        python = self.pythons[cell.python]
        version = python.torch_version
        if version is None:
            return f"PyTorch is not installed for {python.path}"
        if self.device == "cuda" and python.cuda_version is None:
            return f"PyTorch {version} is a CPU build"
        if (few := self._too_few(cell)) is not None:
            return few
        if options.get("compile") and version.startswith(("0.", "1.")):
            return f"PyTorch {version} has no torch.compile, which came with 2.0"
        return None

    def _too_few(self, cell: Cell) -> str | None:
        """Why there are not enough GPUs."""
        if self.device == "cuda" and (cell.devices or 0) > self.gpus:
            return f"this machine has {self.gpus} GPU{'' if self.gpus == 1 else 's'}"
        return None

    def consent(self, plan: Plan, yes: bool) -> None:
        """Have the user agree to the command, of which the first cell's stands for all.

        Raises:
            UsageError: no consent was given.
        """
        first = plan.cells[0]
        on_gpus = self.device == "cuda"
        gpus, nproc = (first.devices, None) if on_gpus else (None, first.place.nproc)
        wish = Wish("cuda" if on_gpus else "cpu", gpus, None, nproc)
        consent(self.entry, yes, first.options, wish)

    def launch(self, cell: Cell, limit: Limit, plan: Plan, sweep: str) -> LaunchSpec:
        """The launch of a cell.

        Raises:
            LaunchError: it cannot be started.
        """
        options = dict(cell.options)
        by_itself = self.entry.builtin is not None
        if by_itself and limit.steps is None:
            options |= {"seconds": f"{limit.seconds:g}", "warmup": str(limit.warmup)}
        cuda = self.device == "cuda"
        args = argparse.Namespace(
            gpus=str(cell.devices) if cuda and cell.devices else None,
            gpu_ids=None,
            nproc=None if cuda else cell.place.nproc,
            device=self.device,
            steps=limit.steps,
            duration=None,
            python=cell.python,
            name=f"{plan.workload} {cell.label}",
            yes=False,
        )
        try:
            spec = workload_spec(self.entry, options, args, Path(plan.cwd))
        except UsageError as error:
            raise LaunchError(str(error)) from None
        spec = replace(spec, sweep={"id": sweep, "cell": cell.id})
        if limit.steps is None and not by_itself:
            spec = replace(spec, measured_s=limit.seconds, warmup=limit.warmup)
        counts = [one.devices for one in plan.cells if one.place.skip is None and one.devices]
        if cuda or "OMP_NUM_THREADS" in os.environ or not counts:
            return spec
        # A rank alone has no more cores than one of many: else nothing could scale.
        most = max(counts)
        threads = max(1, len(os.sched_getaffinity(0)) // most)
        return replace(spec, env={"OMP_NUM_THREADS": str(threads), **spec.env})


def _values(entry: Entry, cell: Cell) -> dict[str, Value]:
    known = {option.name: option for option in entry.options}
    return {name: known[name].parse(text) for name, text in cell.options.items()}


def make_plan(args: argparse.Namespace, command: Sequence[str], cwd: Path) -> tuple[Plan, Machine]:
    """The plan that a ``sweep`` command asks for, and what it is placed on.

    Args:
        args: the parsed options of ``sweep``.
        command: its words.
        cwd: where it was typed.

    Raises:
        UsageError: a word makes no sense.
        LaunchError: likewise, found by the launching side.
    """
    entry = find_entry(load_catalog(cwd), args.workload)
    if entry is None:
        raise UsageError(
            f"sweep takes a workload of the catalog, not the script {safe(args.workload)}: "
            "name it under [workloads] in torchtop.toml"
        )
    refuse_for_a_command(entry, {"--nproc": args.nproc, "--python": args.python})
    axes, fixed = _option_axes(entry, args.option or [])
    pythons = [inspect(path) for path in _words(args.python, "--python") or [sys.executable]]
    counts, device, gpus = _counts(args, entry, pythons)
    machine = Machine(entry, device, {one.path: one for one in pythons}, gpus)
    paths = tuple(dict.fromkeys(one.path for one in pythons))
    python_axis = Axis("python", paths, tuple(_python_names(pythons)))
    cells = make_cells(counts, axes, python_axis, fixed, machine.placed)
    several = [axis for axis in (counts, *axes, python_axis) if len(axis.values) > 1]
    settings = Settings(
        args.steps, args.seconds, args.warmup, args.repeats, args.spread, min(3, args.repeats)
    )
    words = tuple(command)
    plan = Plan(entry.name, device, str(cwd), words, tuple(several), fixed, cells, settings)
    return plan, machine


def _option_axes(entry: Entry, pairs: Sequence[str]) -> tuple[list[Axis], dict[str, str]]:
    """Options with several values, and those with one.

    Raises:
        UsageError, CatalogError: there is no such option, or no such value.
    """
    values: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"-o {safe(pair)}: write -o key=value, or key=value,value")
        option = entry.option(key)
        if entry.builtin and option.name in _OF_THE_SWEEP:
            instead = _OF_THE_SWEEP[option.name] or "--steps or --seconds"
            raise UsageError(f"-o {safe(pair)}: a sweep measures all cells alike: use {instead}")
        for word in _several(option, text):
            values.setdefault(option.name, []).append(entry.validate({key: word})[option.name])
    unique = {name: tuple(dict.fromkeys(texts)) for name, texts in values.items()}
    axes = [Axis(name, texts) for name, texts in unique.items() if len(texts) > 1]
    return axes, {name: texts[0] for name, texts in unique.items() if len(texts) == 1}


def _several(option: Option, text: str) -> list[str]:
    """The values in a word; a text that may be anything (a path) may have commas in it."""
    return [text] if option.type == "str" and not option.choices else text.split(",")


def _counts(
    args: argparse.Namespace, entry: Entry, pythons: Sequence[Interpreter]
) -> tuple[Axis, str, int]:
    """The numbers of devices, the device, and how many GPUs there are.

    A command that may use all that it finds has no number: it starts its ranks itself.
    """
    gpus, nproc = _numbers(args.gpus, "--gpus"), _numbers(args.nproc, "--nproc")
    on_cpu = args.device == "cpu" or (nproc and not gpus and args.device == "auto")
    if on_cpu and gpus:
        raise UsageError("--gpus does not go with --device cpu; ranks: --nproc 1,2")
    if nproc and not on_cpu:
        raise UsageError("--nproc is for ranks on the CPU (--device cpu); GPUs: --gpus 1,2")
    wish = Wish("cuda") if gpus else own_wish(entry, Wish("cpu" if on_cpu else args.device))
    inventory = GpuInventory() if on_cpu else query_gpus()
    usable = [p for p in pythons if p.torch_root is None or p.cuda_version is not None]
    interpreter = None if entry.is_command else (usable or list(pythons))[0]
    placed = place(wish, interpreter, inventory)
    its_own = entry.is_command and wish.gpus is None
    if placed.device == "cpu":
        return Axis("nproc", () if its_own else tuple(nproc or [placed.nproc])), "cpu", 0
    there = len(visible_gpus(inventory))
    if not gpus and not its_own:
        gpus = [len(placed.gpu_uuids) or placed.nproc]
    return Axis("gpus", tuple(gpus)), "cuda", there


def _numbers(text: str | None, option: str) -> list[int]:
    """Whole numbers of at least 1, each once, in order."""
    found = []
    for word in _words(text, option):
        if not word.isdecimal() or len(word) > 9 or int(word) < 1:
            raise UsageError(
                f"{option} {safe(text or '')}: give whole numbers of at least 1, as in 1,2,4"
            )
        found.append(int(word))
    return sorted(set(found))


def _words(text: str | None, option: str) -> list[str]:
    if text is None:
        return []
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"{option} {safe(text)}: one of the values is empty")
    return words


def _python_names(pythons: Sequence[Interpreter]) -> list[str]:
    """What interpreters are called: by their PyTorch, or by their path where that is the same."""
    unique = list({one.path: one for one in pythons}.values())
    versions = [one.torch_version for one in unique]
    return [
        one.path if version is None or versions.count(version) > 1 else f"torch {version}"
        for one, version in zip(unique, versions, strict=True)
    ]
