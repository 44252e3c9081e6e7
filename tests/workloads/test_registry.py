"""The catalog and the command lines made from it. No torch here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from torchtop_workloads import arguments
from torchtop_workloads.registry import WORKLOADS, Option, Value, Workload, find

RESNET = find("resnet50-cifar10")


def option(workload: Workload, name: str) -> Option:
    return next(option for option in workload.options if option.name == name)


def read(workload: Workload, *words: str) -> dict[str, object]:
    found = arguments.parse(workload, words)
    return {name: value for name, value in found.items() if value is not None}


def test_the_keys_start_the_workloads_in_this_order() -> None:
    assert [workload.name for workload in WORKLOADS] == [
        "resnet50-cifar10",
        "compute-heavy",
        "slow-loader",
        "comm-heavy",
        "straggler",
        "tiny-kernels",
        "sync-every-step",
        "resnet50-imagenet",
        "bert-base",
        "gpt2-small",
    ]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_entry_is_whole(workload: Workload) -> None:
    names = [option.name for option in workload.options]
    assert workload.path.is_file()
    assert len(names) == len(set(names))
    assert "\n" not in workload.summary + workload.teaches
    common = "batch batch_per_gpu workers pin_memory compile amp parallel data seed lr scale_lr"
    assert {*common.split(), "steps", "seconds", "warmup", "epochs"} <= {*names}
    json.dumps(asdict(workload))


@pytest.mark.parametrize(
    ("given", "device", "ranks", "gpus", "told"),
    [
        ({}, "cuda", 4, None, {"batch": 256, "workers": 4}),
        ({"workers": 2}, "cpu", 2, None, {"batch": 256}),
        ({"batch_per_gpu": 10}, "cpu", 2, None, {"batch": 20}),
        ({"data": "memory"}, "cuda", 1, None, {"workers": 0}),
        ({"parallel": "dp", "batch_per_gpu": 10}, "cuda", 1, 4, {"batch": 40}),
    ],
)
def test_what_is_not_given_depends_on_where_it_runs(
    given: dict[str, Value], device: str, ranks: int, gpus: int | None, told: dict[str, Value]
) -> None:
    values = RESNET.defaults(given, device, ranks, gpus)
    assert told.items() <= values.items()
    on_cpu = find("bert-base").defaults({}, "cpu", 2)
    assert (on_cpu["batch"], on_cpu["width"], on_cpu["workers"]) == (8, 128, 0)
    assert [*values] == [option.name for option in RESNET.options]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_default_is_a_value_that_may_be_given(workload: Workload) -> None:
    for item in workload.options:
        for default in (item.default, item.cpu_default):
            if default is not None:
                assert item.parse(str(default)) == default
                assert type(item.parse(str(default))) is type(default)


def test_resnet50_cifar10_has_the_settings_of_the_textbook() -> None:
    wanted = {"batch": 256, "workers": 4, "pin_memory": True, "lr": 0.01, "data": "files"}
    wanted |= {"amp": False, "compile": False, "channels_last": False, "parallel": "ddp"}
    for name, value in wanted.items():
        for device in ("cuda", "cpu"):
            assert option(RESNET, name).default_for(device, 2) == value


def test_a_default_for_each_rank_grows_with_the_ranks_and_shrinks_on_a_cpu() -> None:
    batch = option(find("compute-heavy"), "batch")
    assert batch.default_for("cuda", 3) == 3 * 64
    assert batch.default_for("cpu", 2) == 2 * 16


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("batch", "abc", "batch must be a whole number, not 'abc'"),
        ("batch", "1.5", "batch must be a whole number, not '1.5'"),
        ("batch", "0", "batch must be at least 1, not 0"),
        ("lr", "nan", "lr must be a number, not 'nan'"),
        ("lr", "-1", "lr must be at least 0, not -1"),
        ("compile", "maybe", "compile must be on or off, not 'maybe'"),
        ("data", "disk", "data must be files or memory, not 'disk'"),
        ("data_dir", "", "data_dir must not be empty"),
    ],
)
def test_a_bad_value_is_told_in_one_line(name: str, text: str, line: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        option(RESNET, name).parse(text)
    assert str(caught.value) == line


def test_a_batch_that_cannot_be_split_is_told_with_the_remedy() -> None:
    RESNET.check({"batch": 16}, 2)
    RESNET.check({}, 2)
    with pytest.raises(ValueError, match=r"batch 15 cannot be split .* use a multiple of 2"):
        RESNET.check({"batch": 15}, 2)
    with pytest.raises(ValueError, match="batch 256 cannot be split evenly over 3 ranks"):
        RESNET.check({}, 3)
    find("straggler").check({}, 3)


def test_a_batch_for_each_gpu_grows_with_them_and_excludes_one_for_all() -> None:
    imagenet = find("resnet50-imagenet")
    assert imagenet.batch({"batch_per_gpu": 64}, 4) == (256, 4)
    assert imagenet.batch({}, 2) == (128, 2)
    assert imagenet.batch({"parallel": "dp", "batch_per_gpu": 64}, 1, "cuda", 4) == (256, 4)
    assert imagenet.batch({"parallel": "dp"}, 1, "cpu") == (4, 1)
    with pytest.raises(ValueError, match="batch and batch_per_gpu say the same"):
        imagenet.check({"batch": 64, "batch_per_gpu": 64}, 1)
    with pytest.raises(ValueError, match="batch 65 cannot be split evenly over 2 GPUs"):
        imagenet.check({"batch": 65, "parallel": "dp"}, 1, "cuda", 2)


def test_what_cannot_work_together_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parallel=dp cannot be compiled"):
        RESNET.check({"parallel": "dp", "compile": True}, 1)
    with pytest.raises(ValueError, match="width 100 cannot be split over 12 heads"):
        find("bert-base").check({"width": 100, "heads": 12}, 1)
    with pytest.raises(ValueError, match=r"data_dir .*/nope is not a folder"):
        RESNET.check({"data_dir": str(tmp_path / "nope")}, 1)
    RESNET.check({"data_dir": str(tmp_path)}, 1)


def test_one_process_modes_refuse_several_ranks() -> None:
    RESNET.check({"parallel": "dp"}, 1)
    with pytest.raises(ValueError, match="parallel=dp runs in one process, not 2"):
        RESNET.check({"parallel": "dp"}, 2)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--pin-memory"], True),
        (["--no-pin-memory"], False),
        (["--pin_memory", "off"], False),
        (["--pin_memory=on"], True),
        (["--no-pin_memory"], False),
    ],
)
def test_a_switch_is_read_in_every_spelling(words: list[str], value: bool) -> None:
    assert read(RESNET, *words) == {"pin_memory": value}


def test_keys_with_dashes_and_underscores_are_the_same() -> None:
    assert (
        read(RESNET, "--data-dir", "a_b") == read(RESNET, "--data_dir=a_b") == {"data_dir": "a_b"}
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--batch", "abc"], "batch must be a whole number, not 'abc'"),
        (["--compile", "maybe"], "compile must be on or off, not 'maybe'"),
        (["--nope", "1"], "unrecognized arguments: --nope 1"),
        (["--batch"], "expected one argument"),
        (["--bat", "4"], "unrecognized arguments: --bat 4"),
    ],
)
def test_a_bad_command_line_is_one_line_and_status_2(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments.parse(RESNET, words)
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert what in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_help_names_every_option(workload: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        arguments.parse(workload, ["--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(option.flag in text for option in workload.options)


def test_the_catalog_is_read_without_torch() -> None:
    # given an interpreter in which torch cannot be imported
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "import torchtop_workloads.registry, torchtop_workloads.arguments"
    )
    root = Path(sys.modules["torchtop_workloads"].__path__[0]).parent
    # when it reads the catalog, then nothing fails
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(root)})
