"""From what was typed to what is launched."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchtop.commands.errors import UsageError, here
from torchtop.commands.placement import Wish, place
from torchtop.commands.text import one_line, safe
from torchtop.diagnose.thresholds import Thresholds
from torchtop.launch import config
from torchtop.launch.catalog import Catalog, Entry, load_catalog
from torchtop.launch.interpreter import Interpreter, inspect
from torchtop.launch.spec import LaunchSpec
from torchtop.session import redact
from torchtop.session.paths import home
from torchtop.session.there import exists
from torchtop_workloads.faults import FAULTS
from torchtop_workloads.registry import FAULT_PREFIX, find

_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)

Tell = Callable[[str], None]
"""Takes a line that is worth knowing and no error."""


def build_spec(args: argparse.Namespace, cwd: Path) -> LaunchSpec:
    """The launch that a ``run`` command asks for.

    Args:
        args: the parsed options of ``run``, with `target` and `arguments`.
        cwd: where it was typed.

    Raises:
        UsageError: this cannot be started.
        LaunchError: likewise, found by the launching side.
    """
    options = parse_options(args.option or [])
    if args.is_command:
        return _command_spec(args, cwd)
    if args.target.startswith(FAULT_PREFIX) and not args.module:
        entry: Entry | None = _fault(args.target)
        options["fault"] = args.target[len(FAULT_PREFIX) :]
    else:
        entry = None if args.module else find_entry(load_catalog(cwd), args.target)
    if entry is not None:
        if args.arguments:
            raise UsageError(
                f"{safe(args.arguments[0])}: after a workload's name only options of run may "
                f"follow; its own are set with -o key=value (see: torchtop workloads)"
            )
        refuse_for_a_command(entry, {"--nproc": args.nproc, "--python": args.python})
        return workload_spec(entry, options, args, cwd, _to_stderr)
    if options:
        raise UsageError(
            f"-o is for workloads of the catalog; give {args.target} its own arguments"
        )
    spec = LaunchSpec(
        name=args.name or (args.target if args.module else Path(args.target).stem),
        workload=args.target,
        source="module" if args.module else "script",
        target=args.target,
        args=tuple(args.arguments),
        cwd=str(cwd),
        steps=args.steps,
        duration_s=args.duration,
    )
    return _placed(spec, wish_of(args), args.python, _to_stderr)


def _command_spec(args: argparse.Namespace, cwd: Path) -> LaunchSpec:
    """The launch of a command of the user's, which starts its ranks itself."""
    unfit = {"-m": args.module, "-o": args.option, "--nproc": args.nproc, "--python": args.python}
    for option, value in unfit.items():
        if value:
            raise UsageError(f"{option} does not go with run -- COMMAND: write it into the command")
    words = [args.target, *args.arguments]
    spec = LaunchSpec(
        name=args.name or Path(args.target).stem,
        workload=shlex.join(redact.argv(words)),
        source="command",
        target=words[0],
        args=tuple(words[1:]),
        cwd=str(cwd),
        steps=args.steps,
        duration_s=args.duration,
    )
    return _placed_command(spec, wish_of(args))


def _placed_command(spec: LaunchSpec, wish: Wish) -> LaunchSpec:
    """Where a command will run. Only what was asked for changes what it finds."""
    placement = place(wish, None)
    env = dict(spec.env)
    if wish.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    chosen = wish.gpus is not None or wish.gpu_ids is not None
    return replace(
        spec,
        env=env,
        thresholds=thresholds(config.load_config(here())),
        device=placement.device,
        gpu_uuids=placement.gpu_uuids if chosen else (),
    )


def workload_spec(
    entry: Entry,
    options: Mapping[str, str],
    args: argparse.Namespace,
    cwd: Path,
    tell: Tell = lambda _: None,
) -> LaunchSpec:
    """The launch of a workload of the catalog; as `build_spec`.

    A screen in use must not be written over, so what is worth knowing goes to `tell`.
    """
    checked = entry.validate(options)
    own, wish = entry.own, own_wish(entry, wish_of(args))
    if own is not None:
        consent(entry, bool(getattr(args, "yes", False)), options, wish)
    given = dict(options)
    if entry.builtin and args.steps is not None and "steps" not in given:
        given["steps"] = str(args.steps)
    spec = LaunchSpec(
        name=args.name or entry.name,
        workload=entry.name,
        source="command" if entry.is_command else entry.source,
        target=entry.target,
        args=tuple(entry.arguments(given)),
        options=checked,
        cwd=str((own.cwd if own else None) or cwd),
        env=dict(own.env) if own else {},
        steps=args.steps,
        duration_s=args.duration,
    )
    if spec.source == "command":
        return _placed_command(spec, replace(wish, nproc=None))
    spec = _placed(spec, wish, args.python, tell)
    if entry.builtin:
        spec = _in_processes(spec, entry, wish)
    return spec


def own_wish(entry: Entry, wish: Wish) -> Wish:
    """Where a workload runs: what the command line does not say, its file does.

    GPUs that were asked for have a rank each, whatever the file says of ranks.
    """
    if entry.own is None or wish.gpus is not None or wish.gpu_ids is not None:
        return wish
    gpus = None if wish.device == "cpu" else entry.own.gpus
    return replace(wish, gpus=gpus, nproc=wish.nproc or entry.own.nproc)


def refuse_for_a_command(entry: Entry, given: Mapping[str, object]) -> None:
    """Refuse options that a command, which starts its ranks itself, cannot be given.

    Args:
        entry: the workload.
        given: their values, by option.

    Raises:
        UsageError: one has a value.
    """
    for option, value in given.items():
        if entry.is_command and value:
            raise UsageError(
                f"{option} does not go with {entry.name}, a command that starts its ranks "
                "itself: write it into the command"
            )


def _in_processes(spec: LaunchSpec, entry: Entry, wish: Wish) -> LaunchSpec:
    """The launch of a built-in workload in as many processes as its way of parallelism has.

    Raises:
        UsageError: its options do not fit where it shall run.
    """
    options = {
        o.name: o.parse(spec.options[o.name]) for o in entry.options if o.name in spec.options
    }
    gpus = spec.nproc if spec.device == "cuda" else None
    if options.get("parallel") in ("dp", "single") and (wish.nproc or 1) == 1:
        # One process: it sees all the GPUs, or the only one that it uses.
        seen = spec.gpu_uuids if options["parallel"] == "dp" else spec.gpu_uuids[:1]
        spec = replace(spec, nproc=1, gpu_uuids=seen)
    try:
        if entry.builtin:
            entry.builtin.check(options, spec.nproc, spec.device, gpus)
    except ValueError as error:
        raise UsageError(f"{entry.name}: {error}") from None
    return spec


def _to_stderr(line: str) -> None:
    print(f"torchtop: {one_line(line)}", file=sys.stderr)


def _placed(spec: LaunchSpec, wish: Wish, python: str | None, tell: Tell) -> LaunchSpec:
    interpreter = inspect(python or sys.executable)
    placement = place(wish, interpreter)
    if _runs_directly(spec, wish, interpreter):
        has = "no torchrun" if interpreter.torch_root else "no PyTorch"
        tell(f"{interpreter.path} has {has}: the script is started once, as plain Python does")
        spec, placement = replace(spec, direct=True), replace(placement, nproc=1)
    if placement.note:
        tell(placement.note)
    return replace(
        spec,
        thresholds=thresholds(config.load_config(here())),
        python=interpreter.path,
        device=placement.device,
        nproc=placement.nproc,
        gpu_uuids=placement.gpu_uuids,
    )


def _runs_directly(spec: LaunchSpec, wish: Wish, interpreter: Interpreter) -> bool:
    """Whether a script is run although there is no torchrun to start ranks of it.

    Not where it would fail at once for want of torch, or where several ranks were asked for.
    """
    if interpreter.has_torchrun or spec.source == "builtin" or spec.is_module:
        return False
    if (wish.nproc or 1) > 1:
        return False
    try:
        text = (Path(spec.cwd) / spec.target).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return interpreter.torch_root is not None or not _IMPORTS_TORCH.search(text)


def find_entry(catalog: Catalog, target: str) -> Entry | None:
    """The workload of that name; None where `target` is a script's path."""
    if "/" in target or target.endswith(".py"):
        return None
    for entry in catalog.entries:
        if entry.name == target:
            return entry
    if exists(Path(target)):
        return None
    for problem in catalog.problems:
        _to_stderr(problem)
    return catalog.find(target)


def _fault(target: str) -> Entry:
    """A workload with a known fault, which no catalog lists.

    Raises:
        UsageError: there is none of that name.
    """
    try:
        found = find(target)
    except KeyError:
        known = " ".join(fault.code for fault in FAULTS)
        raise UsageError(f"there is no {safe(target)}; the faults are: {known}") from None
    return Entry(None, found.name, found.summary, "builtin", found.options, builtin=found)


def command_of(entry: Entry, options: Mapping[str, str], wish: Wish) -> str:
    """The command that a workload of a file runs, for a person to judge; empty for a built-in one.

    Args:
        entry: the workload.
        options: its options as they were typed.
        wish: where it shall run.
    """
    if entry.own is None:
        return ""
    wish = own_wish(entry, wish)
    gpus = wish.gpus or (None if wish.gpu_ids is None else len(wish.gpu_ids))
    return entry.own.command_with(entry.parse(options), wish.nproc or gpus)


def consent(entry: Entry, yes: bool, options: Mapping[str, str], wish: Wish) -> None:
    """Have the user agree to the first start of a workload that the current directory names.

    Args:
        entry: the workload.
        yes: whether the command line agrees.
        options: those of this start, as they were typed.
        wish: where it shall run.

    Raises:
        UsageError: no consent was given.
    """
    own = entry.own
    if own is None or not config.needs_consent(own, home()):
        return
    if not yes:
        command = command_of(entry, options, wish)
        if not sys.stdin.isatty():
            raise UsageError(
                f"{entry.name} runs: {command} -- agree to it once with --yes", whole=True
            )
        sys.stderr.write(_question(entry.name, own.file, command))
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError(f"{entry.name} was not started")
    config.give_consent(own, home())


def _question(name: str, file: Path, command: str) -> str:
    """What is asked before a command is run for the first time: all of it, in lines that fit."""
    from torchtop.app.text import broken

    width = max(20, shutil.get_terminal_size().columns)
    lines = "\n".join(f"  {line}" for line in broken(safe(command), width - 3))
    return (
        f"{safe(name)} is defined in {safe(file)} and runs:\n{lines}\n"
        "Start it, now and from now on? [y/N] "
    )


def thresholds(found: config.Config) -> dict[str, float]:
    """The limits of the diagnosis that the configuration files change.

    Raises:
        UsageError: one does not exist, or is no number.
    """
    try:
        Thresholds.from_mapping(found.thresholds)
    except ValueError as error:
        raise UsageError(f"[thresholds] in {config.FILE_NAME}: {safe(error)}") from None
    return dict(found.thresholds)


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """The values of ``-o key=value``.

    Raises:
        UsageError: one has no ``=``.
    """
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"-o {safe(pair)}: write -o key=value")
        options[key] = value
    return options


def wish_of(args: argparse.Namespace) -> Wish:
    """Where the user wants it to run.

    Raises:
        UsageError: a count is no number.
    """
    gpus = args.gpus
    if gpus is not None and gpus != "all":
        gpus = _whole("--gpus", gpus, " or all")
    ids = args.gpu_ids
    if ids is not None:
        ids = tuple(_whole("--gpu-ids", part, "s, as in 0,1") for part in ids.split(","))
    return Wish(args.device, gpus, ids, args.nproc)


def _whole(option: str, text: str, more: str = "") -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{option} {safe(text)}: give a whole number{more}") from None
