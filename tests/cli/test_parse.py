"""What a command line means, before anything runs."""

from __future__ import annotations

import pytest

from torchtop.cli import parse


def test_options_of_run_may_follow_a_workload() -> None:
    args = parse(["run", "--no-tui", "compute-heavy", "-o", "batch=16", "--steps", "30"])

    assert (args.target, args.option, args.steps) == ("compute-heavy", ["batch=16"], 30)
    assert args.no_tui is True
    assert args.arguments == []


def test_options_before_and_after_a_workload_add_up() -> None:
    args = parse(["run", "-o", "a=1", "--nproc", "3", "compute-heavy", "-o", "b=2"])

    assert args.option == ["a=1", "b=2"]
    assert args.nproc == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train.py"], "there is no command train.py; did you mean: torchtop run train.py ("),
        (["shwo", "x"], "there is no command shwo; did you mean: torchtop show ("),
        (["run", "--nproc", "1"], "are required: WORKLOAD|SCRIPT (see: torchtop run --help)"),
        (["run", "--dev", "cpu"], "unrecognized arguments: --dev (see: torchtop run --help)"),
        (["ls", "x"], "unrecognized arguments: x (see: torchtop ls --help)"),
        (["--json", "ls"], "unrecognized arguments: --json (see: torchtop"),
    ],
)
def test_what_makes_no_sense_is_told_with_what_may_be_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(words)
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize("script", ["train.py", "./bin/train"])
def test_everything_after_a_script_is_its_own(script: str) -> None:
    args = parse(["run", "--steps", "5", script, "--steps", "9", "-o", "x", "--", "y"])

    assert args.steps == 5
    assert args.option is None
    assert args.arguments == ["--steps", "9", "-o", "x", "--", "y"]


@pytest.mark.parametrize(
    "own",
    [
        ["--gpu", "0"],
        ["--n", "8192"],
        ["--d", "--g", "--gpu=0"],
        ["pos", "--n", "3"],
        ["--", "--n", "3"],
        ["--"],
        ["-h"],
        ["--help", "--version"],
        ["-m", "x", "--no-tui"],
    ],
)
def test_no_argument_of_a_script_is_taken_for_an_option(own: list[str]) -> None:
    args = parse(["run", "--no-tui", "--gpus", "1", "train.py", *own])

    assert args.arguments == own
    assert (args.target, args.gpus, args.module) == ("train.py", "1", False)
    assert parse(["run", "-m", "pkg.mod", *own]).arguments == own


def test_an_option_is_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["run", "--step", "3", "train.py"])

    assert "--step" in capsys.readouterr().err


def test_a_module_takes_the_rest_as_its_own() -> None:
    args = parse(["run", "-m", "pkg.train", "--lr", "0.1"])

    assert (args.module, args.target, args.arguments) == (True, "pkg.train", ["--lr", "0.1"])


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "train.sh"],
        ["torchrun", "--nproc-per-node", "2", "train.py", "--steps", "3", "--", "-x"],
        ["--odd", "--"],
        ["resnet50-cifar10", "--steps", "3"],
    ],
)
def test_after_two_dashes_all_is_the_command(command: list[str]) -> None:
    args = parse(["run", "--steps", "9", "--", *command])

    assert (args.is_command, args.steps) == (True, 9)
    assert [args.target, *args.arguments] == command


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse(["run", "--duration", text, "x"]).duration == seconds


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--steps", "0", "x"],
        ["run", "--steps", "two", "x"],
        ["run", "--duration", "-1", "x"],
        ["run", "--device", "tpu", "x"],
        ["run", "--"],
        ["run", "--steps", "3", "--"],
        ["fly"],
        ["stop", "--soft", "--kill"],
    ],
)
def test_nonsense_is_one_line_and_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(words)

    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("torchtop: ")
