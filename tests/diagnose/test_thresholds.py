"""The table of thresholds."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from torchtop.diagnose import thresholds
from torchtop.diagnose.thresholds import DEFAULT, Thresholds


def test_a_number_can_be_replaced() -> None:
    assert Thresholds.from_mapping({"warn": 0.2}).warn == 0.2
    assert Thresholds.from_mapping({}) == DEFAULT


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"wran": 0.1}, "there is no threshold 'wran'"),
        ({"warn": -1}, "at least 0"),
        ({"warn": "high"}, "must be a number"),
        ({"warn": True}, "must be a number"),
        ({"warn": float("nan")}, "at least 0"),
    ],
)
def test_what_is_no_threshold_is_told(values: dict[str, float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Thresholds.from_mapping(values)


def test_every_number_is_used() -> None:
    folder = Path(thresholds.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    unused = [one.name for one in fields(Thresholds) if f".{one.name}" not in source]
    assert unused == []


def test_every_number_has_its_source_beside_it() -> None:
    tree = ast.parse(inspect.getsource(thresholds))
    table = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Thresholds")
    body = [node for node in table.body if not isinstance(node, ast.FunctionDef)][1:]
    for index, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            after = body[index + 1] if index + 1 < len(body) else None
            assert isinstance(after, ast.Expr), ast.unparse(node)
            assert isinstance(after.value, ast.Constant), ast.unparse(node)
