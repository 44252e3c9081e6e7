"""``torchtop init``: a ``torchtop.toml`` made by looking at the current directory."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from torchtop.commands.errors import UsageError, here
from torchtop.commands.text import safe
from torchtop.launch.config import FILE_NAME
from torchtop.launch.scan import Found, find_trainings
from torchtop_workloads.registry import WORKLOADS

_MOST = 12
"""Workloads that are written; more are seldom meant."""

_MOST_OPTIONS = 8

_HEAD = """\
# Workloads of this directory for torchtop. Each has a name and, as far as they go, a key in the
# viewer after the built-in ones:  torchtop run NAME [-o option=value]
# The first start of each shows its full command and asks. This file is not read while others can
# write it. Paths are relative to it.
"""

_EXAMPLE = """
# No training script was found here. A workload would look like this:
#
# [workloads.my-model]
# script = "train.py"             # or module = "package.train", or command = ["bash", "train.sh"]
# summary = "our model on our data"
"""

_REFERENCE = """
# What else a workload may have:
#
# args = ["--epochs", "3"]        # before the options
# gpus = 2                        # or "all", the default
# nproc = 2                       # ranks where there are no GPUs; a command starts its own
# env = { OMP_NUM_THREADS = "4" }
# cwd = "."
# options = { lr = 0.1 }          # -o lr=0.2 becomes --lr=0.2; true becomes --lr, false nothing
"""


def init(args: argparse.Namespace) -> int:
    """Write the file; never over one that is there.

    Raises:
        UsageError: there is one, or it cannot be written.
    """
    directory = here()
    path = directory / FILE_NAME
    if os.path.lexists(path):
        raise UsageError(f"{FILE_NAME} is there already: edit it, or move it away first")
    found = _named(find_trainings(directory)[:_MOST])
    try:
        # Readable by all, as what it lists; writable by nobody else, or it would not be read.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text(found))
    except OSError as error:
        raise UsageError(f"cannot write {FILE_NAME}: {error.strerror}") from None
    print(f"wrote {FILE_NAME} with {_count(found)}")
    wide = max((len(name) for name in found), default=0)
    for name, training in found.items():
        print(f"  torchtop run {name:<{wide}}   {safe(training.path)}")
    if not found:
        print("no training script was found here; the file holds an example")
    return 0


def text(found: dict[str, Found]) -> str:
    """The file's text.

    Args:
        found: what trains, by name.
    """
    tables = "".join(_table(*item) for item in found.items())
    return _HEAD + (tables or _EXAMPLE) + _REFERENCE


def _table(name: str, found: Found) -> str:
    lines = [f"\n[workloads.{name}]", f"{found.kind} = {_target(found)}"]
    lines.append(f"summary = {_quoted(found.summary or str(found.path))}")
    values = list(found.options.items())[:_MOST_OPTIONS]
    if values and found.kind != "command":
        shown = ", ".join(f"{option} = {_value(value)}" for option, value in values)
        lines.append(f"# options = {{ {shown} }}")
    return "\n".join(lines) + "\n"


def _target(found: Found) -> str:
    if found.kind == "command":
        program = "bash" if found.path.suffix == ".sh" else "python"
        return f"[{_quoted(program)}, {_quoted(str(found.path))}]"
    if found.kind == "module":
        return _quoted(".".join(found.path.with_suffix("").parts))
    return _quoted(str(found.path))


def _value(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower()


def _quoted(value: str) -> str:
    """A basic string of TOML."""
    told = json.dumps(value, ensure_ascii=False)
    return told.replace("\x7f", "\\u007f")


def _named(found: Iterable[Found]) -> dict[str, Found]:
    """Each under a name of its own, which no built-in workload has."""
    taken = {workload.name for workload in WORKLOADS}
    named: dict[str, Found] = {}
    for training in found:
        for name in _names(training.path):
            if name not in taken:
                taken.add(name)
                named[name] = training
                break
    return named


def _names(path: Path) -> Iterable[str]:
    """Names that a file may be given, the shortest first."""
    words = [re.sub(r"[^A-Za-z0-9_-]+", "-", p).strip("-_") for p in path.with_suffix("").parts]
    words = [word for word in words if word] or ["train"]
    for count in range(1, len(words) + 1):
        yield "-".join(words[-count:])[-32:].strip("-_")
    base = "-".join(words)[-32:].strip("-_")
    yield f"{base}-{path.suffix[1:]}"
    yield from (f"{base}-{number}" for number in range(2, 100))


def _count(found: dict[str, Found]) -> str:
    return "1 workload" if len(found) == 1 else f"{len(found)} workloads"
