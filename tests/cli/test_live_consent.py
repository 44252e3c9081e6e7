"""The viewer's controller: what a workload of a directory's file runs is agreed to once."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtop.app.controller import ControllerError
from torchtop.cli import parse
from torchtop.commands.live import LiveController

FILE = '[workloads.ours]\nscript = "train.py"\nargs = ["--epochs", "{}"]\n'


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveController:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write(tmp_path, 3)
    return LiveController(parse(["run", "x"]), tmp_path)


def write(folder: Path, epochs: int) -> None:
    file = folder / "torchtop.toml"
    file.write_text(FILE.format(epochs))
    file.chmod(0o600)


def test_a_command_is_asked_about_until_it_is_agreed_to(controller: LiveController) -> None:
    entry = next(e for e in controller.workloads() if e.name == "ours")
    assert entry.problem is None
    asked = controller.consent("ours", {})
    assert asked is not None and "train.py --epochs 3" in asked
    controller.agree("ours")
    assert controller.consent("ours", {}) is None
    assert controller.consent("compute-heavy", {}) is None


def test_agreeing_holds_for_what_was_shown_alone(
    controller: LiveController, tmp_path: Path
) -> None:
    controller.consent("ours", {})
    write(tmp_path, 9)
    controller.agree("ours")
    asked = controller.consent("ours", {})
    assert asked is not None and "--epochs 9" in asked
    with pytest.raises(ControllerError, match="start it again"):
        controller.start("ours", {})


@pytest.mark.parametrize(
    ("device", "ranks", "options", "told"),
    [
        ("cuda", 4, {}, {"batch": 128, "width": 768}),
        ("cpu", 2, {}, {"batch": 8, "width": 128}),
        ("cpu", 2, {"batch_per_gpu": "3"}, {"batch": 6}),
        ("cpu", None, {"gone": "x"}, {"batch": 4}),
    ],
)
def test_defaults_are_those_of_the_sessions_device(
    controller: LiveController,
    device: str,
    ranks: int | None,
    options: dict[str, str],
    told: dict[str, object],
) -> None:
    entry = next(e for e in controller.workloads() if e.name == "bert-base")
    found = entry.defaults({"device": device, "nproc": ranks, "options": options})
    assert {name: found[name] for name in told} == told


def test_nothing_is_agreed_to_unread(controller: LiveController) -> None:
    with pytest.raises(ControllerError, match="read its command"):
        controller.agree("ours")


def test_the_command_to_agree_to_has_the_options_of_the_start(
    controller: LiveController, tmp_path: Path
) -> None:
    with (tmp_path / "torchtop.toml").open("a") as file:
        file.write("options = { lr = 0.1 }\n")

    asked = controller.consent("ours", {"lr": "0.5"})
    assert asked is not None and asked.endswith("train.py --epochs 3 --lr=0.5")
