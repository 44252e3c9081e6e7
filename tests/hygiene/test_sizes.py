"""Modules and functions stay small enough to be read at once: past that a name is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES = 400
FUNCTION_LINES = 50


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_there_is_something_to_measure() -> None:
    assert len(list(sources("tui", "workloads"))) > 10


def test_no_module_is_too_long() -> None:
    sizes = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines())
        for file in sources("tui", "workloads")
    }
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_LINES} == {}


def test_no_function_is_too_long() -> None:
    sizes = {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0)
        - node.lineno
        + 1
        for file in sources("tui", "workloads", "tests")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES} == {}
