"""The cells of a sweep: all combinations, and the references that explain them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from torchtop.experiment.plan import Axis, Cell, Place, Plan, Settings, make_cells
from torchtop.session.paths import SessionError, write_json

PYTHON = Axis("python", ("/a/python",), ("torch 2.11.0",))


def placed(cell: Cell, gpus: int = 4) -> Place:
    """As a workload with a global batch of 256, on a machine with so many GPUs."""
    if cell.devices is None:
        return Place(None)
    parallel = cell.options.get("parallel", "ddp")
    each, whole = cell.options.get("batch_per_gpu"), cell.options.get("batch", "256")
    batch = int(each) * cell.devices if each else int(whole)
    skip = f"this machine has {gpus} GPUs" if cell.devices > gpus else None
    if parallel == "single" and cell.devices > 1:
        skip = "one device"
    return Place(cell.devices if parallel == "ddp" else 1, parallel, batch, skip)


def cells(
    counts: tuple[int, ...], *axes: Axis, pythons: Axis = PYTHON, gpus: int = 4, **fixed: str
) -> dict[str, Cell]:
    made = make_cells(Axis("gpus", counts), axes, pythons, fixed, lambda cell: placed(cell, gpus))
    assert len({cell.id for cell in made}) == len(made)
    return {cell.id: cell for cell in made}


def a_plan(made: dict[str, Cell]) -> Plan:
    settings = Settings(steps=100)
    return Plan("w", "cuda", "/home/u", ("sweep", "w"), (), {}, tuple(made.values()), settings)


def test_a_batch_that_is_split_gets_a_reference_for_each_share() -> None:
    made = cells((1, 2, 4))

    assert [cell.label for cell in made.values()] == [
        "1 GPU",
        "2 GPUs",
        "4 GPUs",
        "1 GPU, batch_per_gpu=128",
        "1 GPU, batch_per_gpu=64",
    ]
    assert [cell.role for cell in made.values()] == ["asked"] * 3 + ["reference"] * 2
    two, reference = made["gpus=2"], made["gpus=1,batch_per_gpu=128"]
    assert (two.base, two.reference) == ("gpus=1", reference.id)
    assert (reference.devices, reference.options) == (1, {"batch_per_gpu": "128"})
    assert made["gpus=1"].base is None


def test_a_batch_for_each_gpu_needs_none() -> None:
    made = cells((1, 2), batch_per_gpu="64")

    assert [cell.role for cell in made.values()] == ["asked", "asked"]
    assert made["gpus=2"].base == "gpus=1"
    assert made["gpus=2"].reference is None


def test_options_are_combined_and_each_scales_by_itself() -> None:
    made = cells((1, 2), Axis("compile", ("off", "on")), amp="on")

    two = made["gpus=2,compile=on"]
    assert two.label == "2 GPUs, compile=on"
    assert two.options == {"amp": "on", "compile": "on"}
    assert two.base == "gpus=1,compile=on"
    assert two.reference == "gpus=1,compile=on,batch_per_gpu=128"
    assert made[two.reference].options == {"amp": "on", "compile": "on", "batch_per_gpu": "128"}


def test_a_cell_that_was_asked_for_is_a_reference_as_well() -> None:
    made = cells((1, 2), Axis("batch", ("128", "256")))

    assert made["gpus=2,batch=256"].reference == "gpus=1,batch=128"
    assert [c.id for c in made.values() if c.role == "reference"] == ["gpus=1,batch_per_gpu=64"]


def test_without_one_gpu_the_fewest_are_the_base() -> None:
    made = cells((2, 4))

    assert made["gpus=4"].base == "gpus=2"
    reference = made["gpus=2,batch_per_gpu=64"]
    assert (reference.devices, reference.place.batch) == (2, 128)


def test_what_the_machine_lacks_has_no_reference_and_is_no_base() -> None:
    made = cells((1, 8), Axis("parallel", ("ddp", "single")), gpus=4)

    assert made["gpus=8,parallel=ddp"].place.skip == "this machine has 4 GPUs"
    assert made["gpus=8,parallel=single"].place.skip == "one device"
    assert [cell.role for cell in made.values()] == ["asked"] * 4


def test_interpreters_are_told_by_their_torch_and_compared_with_none() -> None:
    pythons = Axis("python", ("/a/python", "/b/python"), ("torch 2.11.0", "torch 1.13.1"))
    made = cells((1,), pythons=pythons)

    assert [cell.label for cell in made.values()] == ["torch 2.11.0", "torch 1.13.1"]
    assert [cell.base for cell in made.values()] == [None, None]


def test_a_single_cell_is_a_sweep_too() -> None:
    (cell,) = cells((2,)).values()

    assert (cell.id, cell.label, cell.base) == ("all", "2 GPUs", None)


def test_a_plan_is_the_same_after_a_night_on_disk(tmp_path: Path) -> None:
    plan = a_plan(cells((1, 2)))
    write_json(tmp_path / "plan.json", plan.to_json())

    assert Plan.load(tmp_path / "plan.json") == plan


def test_the_same_question_is_known_again_on_another_machine() -> None:
    plan = a_plan(cells((1, 2, 8), gpus=8))
    other = replace(a_plan(cells((1, 2, 8), gpus=2)), command=("sweep", "--new", "w"))

    assert len(plan.cells) > len(other.cells)
    assert plan.fingerprint == other.fingerprint
    for changed in (
        replace(plan, settings=Settings(steps=50)),
        replace(plan, workload="x"),
        a_plan(cells((1, 2, 8), gpus=8, amp="on")),
    ):
        assert changed.fingerprint != plan.fingerprint


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"workload": "w", "cells": [1]})])
def test_a_damaged_plan_is_told_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(SessionError, match="is damaged"):
        Plan.load(tmp_path / "plan.json")
