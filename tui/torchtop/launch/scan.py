"""Finding the training scripts of a directory by reading them: nothing is run or imported."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_DEPTH = 3
"""Folders below the directory that are looked into."""

_MOST_FILES = 5000
_MOST_BYTES = 1 << 20
_SKIPPED = ("build", "dist", "node_modules", "site-packages", "tests", "test", "docs", "wandb")

_LIBRARIES = ("torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed")
_TRAINS = ("backward", "fit")
"""Methods by which a script trains: of a loss or an accelerator, of a Lightning trainer."""

_LAUNCHERS = re.compile(
    r"^[^#\n]*\b(?:torchrun|accelerate\s+launch|deepspeed|torch\.distributed\.(?:run|launch))\b",
    re.MULTILINE,
)
_STARTS = re.compile(r"^[^#\n]*\bpython[\d.]*\s+(?:-u\s+)?(\S+\.py)\b", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """Something that trains.

    Attributes:
        path: of the file, relative to the directory.
        kind: ``script``; ``module`` where it imports from its own package; ``command`` where it
            starts its ranks itself, or is a shell script.
        summary: the first line of its description; empty without one.
        options: its own options by name, with their defaults, as far as its source tells.
    """

    path: Path
    kind: str
    summary: str = ""
    options: dict[str, bool | int | float | str] = field(default_factory=dict)


def find_trainings(directory: Path) -> list[Found]:
    """The scripts below a directory that train, the most likely first."""
    files = list(_files(directory))
    scripts = [s for f in files if f.suffix == ".py" and (s := _script(directory, f)) is not None]
    names = {script.path.name for script in scripts}
    shells = [s for f in files if f.suffix == ".sh" and (s := _shell(directory, f, names))]
    return sorted([*scripts, *shells], key=_likelihood)


def _likelihood(found: Found) -> tuple[bool, int, bool, str]:
    named = "train" in found.path.stem or "main" in found.path.stem
    return (not named, len(found.path.parts), found.path.suffix != ".py", str(found.path))


def _files(directory: Path) -> Iterator[Path]:
    """Files that may train, near ones first, relative to the directory."""
    seen = 0
    for folder, folders, names in os.walk(directory):
        here = Path(folder)
        depth = len(here.relative_to(directory).parts)
        folders[:] = sorted(
            name
            for name in folders
            if depth < _DEPTH
            and not name.startswith((".", "_"))
            and name not in _SKIPPED
            and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                return
            if name.endswith((".py", ".sh")) and not name.startswith("test_"):
                yield (here / name).relative_to(directory)


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _shell(directory: Path, path: Path, scripts: set[str]) -> Found | None:
    text = _text(directory / path)
    started = {Path(name).name for name in _STARTS.findall(text)}
    return Found(path, "command") if _LAUNCHERS.search(text) or started & scripts else None


def _script(directory: Path, path: Path) -> Found | None:
    """What a Python file is, if it is run to train."""
    text = _text(directory / path)
    if not any(library in text for library in _LIBRARIES):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    imports = {name.partition(".")[0] for name in _imports(tree)}
    methods = (*_TRAINS, "train") if "Trainer" in text else _TRAINS  # as of Transformers
    runs = _has_main(tree) or _calls(_top_level(tree), methods)
    if not (imports & set(_LIBRARIES) and runs and _calls(ast.walk(tree), methods)):
        return None
    doc = (ast.get_docstring(tree) or "").strip().split("\n")[0][:100]
    return Found(path, _kind(tree, path, directory), doc, dict(_options(tree)))


def _kind(tree: ast.Module, path: Path, directory: Path) -> str:
    if _calls(ast.walk(tree), ("spawn", "start_processes")):
        return "command"
    relative = any(isinstance(n, ast.ImportFrom) and n.level for n in ast.walk(tree))
    in_package = len(path.parts) > 1 and (directory / path.parent / "__init__.py").exists()
    return "module" if relative and in_package else "script"


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _has_main(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and "__name__" in ast.dump(node.test) for node in tree.body)


def _top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs as the file is run: not what stands in functions and classes."""
    todo: list[ast.AST] = [*tree.body]
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
            todo.extend(ast.iter_child_nodes(node))


def _calls(nodes: Iterable[ast.AST], methods: tuple[str, ...]) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
        for node in nodes
    )


def _options(tree: ast.Module) -> Iterator[tuple[str, bool | int | float | str]]:
    """The long options of an ``argparse`` parser that have plain defaults."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _calls([node], ("add_argument",)):
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        long = [w for w in words if isinstance(w, str) and re.fullmatch(r"--[A-Za-z][\w-]*", w)]
        given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        if not long:
            continue
        name, default = long[0][2:], given.get("default")
        if given.get("action") == "store_true":
            yield name, False
        elif isinstance(default, (int, float, str)) and not isinstance(default, bool):
            yield name, default
