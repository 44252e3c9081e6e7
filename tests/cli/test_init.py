"""``torchtop init``: what trains in a directory is found by reading, and written down."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from cli.command import torchtop
from torchtop.commands.init import text
from torchtop.launch.config import FileWorkload, load_config
from torchtop.launch.scan import Found, find_trainings

TRAINS = """
'''Train the model.

In more than one line.'''
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--lr", default=1e-05, type=float)
parser.add_argument("--name", default='a "b" \\x7f')
parser.add_argument("--fast", action="store_true")
parser.add_argument("--data", required=True)
if __name__ == "__main__":
    torch.ones(1, requires_grad=True).sum().backward()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = tmp_path / "project"
    made.mkdir()
    return made


def write(project: Path, **files: str) -> None:
    for name, content in files.items():
        path = project / name.replace("__slash__", "/").replace("__dot__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(content))


def found(project: Path) -> dict[str, str]:
    return {str(training.path): training.kind for training in find_trainings(project)}


def read(project: Path) -> dict[str, FileWorkload]:
    config = load_config(project)
    assert config.problems == ()
    return {workload.name: workload for workload in config.workloads}


@pytest.mark.parametrize(
    ("body", "trains"),
    [
        ("import torch\nfor x in []:\n    loss.backward()", True),
        ("import torch\nif __name__ == '__main__':\n    main()\ndef main(): loss.backward()", True),
        ("from accelerate import Accelerator\naccelerator.backward(loss)", True),
        ("import lightning as L\nL.Trainer().fit(model)", True),
        ("from transformers import Trainer\ntrainer = Trainer()\ntrainer.train()", True),
        ("import torch\ndef step(loss):\n    loss.backward()", False),  # a module of others
        ("import torch\nmodel.train()\nprint(model(x))", False),
        ("import sklearn\nmodel.fit(x)", False),
        ("import torch\nif __name__ == '__main__':\n    evaluate()", False),
        ("import torch\nthis is no Python: loss.backward()", False),
        ("# import torch\nloss.backward()", False),
    ],
)
def test_what_trains_is_told_from_what_does_not(project: Path, body: str, trains: bool) -> None:
    write(project, script__dot__py=body)
    assert bool(found(project)) is trains


def test_each_kind_is_started_in_its_own_way(project: Path) -> None:
    write(
        project,
        train__dot__py=TRAINS,
        spawns__dot__py="import torch.multiprocessing as mp\nmp.spawn(f)\nloss.backward()",
        package__slash____init____dot__py="",
        package__slash__main__dot__py="from .net import N\nimport torch\nN().backward()",
        single__dot__sh="python -u train.py --lr 1",
        many__dot__sh="#!/bin/sh\nexec torchrun --nproc-per-node 8 train.py",
        other__dot__sh="python clean.py\n# torchrun is not used",
    )
    assert found(project) == {
        "train.py": "script",
        "package/main.py": "module",
        "spawns.py": "command",
        "single.sh": "command",
        "many.sh": "command",
    }


def test_environments_and_tests_are_not_looked_into(project: Path) -> None:
    write(
        project,
        tests__slash__train__dot__py=TRAINS,
        test_train__dot__py=TRAINS,
        __dot__git__slash__train__dot__py=TRAINS,
        env__slash__pyvenv__dot__cfg="",
        env__slash__lib__slash__train__dot__py=TRAINS,
        a__slash__b__slash__c__slash__d__slash__train__dot__py=TRAINS,
    )
    assert found(project) == {}


def test_the_file_is_read_as_it_was_meant(project: Path, tmp_path: Path) -> None:
    write(
        project,
        train__dot__py=TRAINS,
        train__dot__sh="torchrun train.py",
        sub__slash__train__dot__py=TRAINS,
        slow_loader__dot__py=TRAINS,
    )

    done = torchtop("init", home=tmp_path / "home", cwd=project)

    assert (done.returncode, done.stderr) == (0, "")
    workloads = read(project)
    assert list(workloads) == ["train", "train-sh", "sub-train", "slow_loader"]
    for name in workloads:
        assert f"torchtop run {name} " in done.stdout
    train = workloads["train"]
    assert (train.script, train.summary) == (project / "train.py", "Train the model.")
    assert workloads["train-sh"].command == ("bash", "train.sh")
    assert (project / "torchtop.toml").stat().st_mode & 0o022 == 0


def test_the_options_that_it_suggests_can_be_taken(project: Path, tmp_path: Path) -> None:
    write(project, train__dot__py=TRAINS)
    torchtop("init", home=tmp_path / "home", cwd=project)
    file = project / "torchtop.toml"
    lines = file.read_text().replace("# options = { batch", "options = { batch", 1)

    file.write_text(lines)

    (train,) = read(project).values()
    assert train.arguments({}) == ["--batch-size=32", "--lr=1e-05", '--name=a "b" \x7f']
    assert train.arguments({"fast": True})[-1] == "--fast"


def test_its_reference_can_be_taken_too(project: Path) -> None:
    body = text({"mine": Found(Path("train.py"), "script")})
    head, reference = body.split("# What else a workload may have:\n#\n")
    taken = "\n".join(line.removeprefix("# ") for line in reference.splitlines())
    (project / "torchtop.toml").write_text(head + taken)

    mine = read(project)["mine"]

    assert (mine.args, mine.gpus, mine.nproc) == (("--epochs", "3"), 2, 2)
    assert mine.arguments({}) == ["--epochs", "3", "--lr=0.1"]


def test_a_file_that_is_there_is_left_alone(project: Path, tmp_path: Path) -> None:
    file = project / "torchtop.toml"
    for _ in range(2):
        done = torchtop("init", home=tmp_path / "home", cwd=project)
        before = file.read_text()
    assert done.returncode == 2
    assert done.stderr.startswith("torchtop: torchtop.toml is there already")
    assert file.read_text() == before

    file.unlink()
    file.symlink_to("nowhere")
    assert torchtop("init", home=tmp_path / "home", cwd=project).returncode == 2


def test_where_nothing_trains_there_is_an_example(project: Path, tmp_path: Path) -> None:
    done = torchtop("init", home=tmp_path / "home", cwd=project)

    assert done.returncode == 0
    assert "no training script was found here" in done.stdout
    assert read(project) == {}
    example = (project / "torchtop.toml").read_text()
    head, _, rest = example.partition("# [workloads.my-model]")
    taken = "[workloads.my-model]" + rest.replace("\n# s", "\ns").split("\n# What")[0]
    (project / "torchtop.toml").write_text(head + taken)
    assert read(project)["my-model"].script == project / "train.py"


def test_a_directory_that_cannot_be_written_is_told(project: Path, tmp_path: Path) -> None:
    project.chmod(0o500)
    if os.access(project, os.W_OK):
        pytest.skip("this user may write everywhere")
    done = torchtop("init", home=tmp_path / "home", cwd=project)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
