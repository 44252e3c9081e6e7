"""``torchtop run -- COMMAND``: the user's own launcher, attributed as torchtop's is."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from anyscript.commanded import Told, bare, output_of, told, write
from cli.command import torchtop
from probe.staged import bare_python, clean_environment

torch = pytest.importorskip("torch")

STEPS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    write(made)
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def both(folder: Path, home: Path) -> tuple[Told, str]:
    """A shell script that calls torchrun itself, on two ranks: under torchtop, and bare."""
    words = ("bash", "train.sh", str(STEPS))
    plain = bare(*words, cwd=folder, env=clean_environment(PYTHON=bare_python()))
    run = told("--", *words, cwd=folder, home=home)
    return run, output_of(plain)


@pytest.fixture(scope="module")
def shell(both: tuple[Told, str]) -> Told:
    return both[0]


def lines_of(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda line: int(line["rank"]))


def test_a_shell_script_that_calls_torchrun_is_attributed(shell: Told) -> None:
    assert shell.code == 0, shell.out + shell.err
    summary = shell.summary
    assert (summary["status"], summary["exit"]["message"]) == ("done", "all 2 ranks finished")
    assert (summary["steps"], summary["world_size"]) == (STEPS, 2)
    assert [rank["rank"] for rank in summary["ranks"]] == [0, 1]
    for rank in summary["ranks"]:
        phases = sum(phase["ms"] for phase in rank["phases"].values())
        assert phases == pytest.approx(rank["host_step_ms"], rel=0.01)
        assert rank["loader"]["workers"] == 1
    assert summary["throughput"]["samples_per_s"] > 0
    # of a command only its ranks can tell; CUDA is what PyTorch was built for, as in other runs
    built = (torch.__version__, torch.version.cuda)
    assert (summary["versions"]["torch"], summary["versions"]["cuda"]) == built
    assert shell.left == []


def test_the_launcher_and_loader_workers_are_no_ranks(shell: Told) -> None:
    names = sorted(file.name.split("-")[0] for file in (shell.root / "ranks").glob("*.jsonl"))
    assert names == ["0", "0", "1", "1"]
    ranks = [e["rank"] for e in shell.events if e["kind"] == "process" and e["role"] == "rank"]
    assert sorted(ranks) == [0, 1]


def test_output_and_weights_are_those_of_the_bare_command(both: tuple[Told, str]) -> None:
    shell, plain = both

    output = shell.log("ranks/attempt_0/0/stdout.log") + shell.log("ranks/attempt_0/1/stdout.log")

    # But for torchtop's own checkout, which these tests have on PYTHONPATH.
    ranks, wanted = lines_of(output), lines_of(plain)
    for line in ranks:
        line["path"] = [entry for entry in line["path"] if not entry.endswith(("tui", "workloads"))]
    assert ranks == wanted
    assert len(wanted) == 2


def test_each_rank_has_a_log_and_the_shell_one_of_its_own(shell: Told) -> None:
    own = shell.log("command/attempt_0/0/stdout.log").splitlines()
    assert own[0] == "the shell begins"
    assert own[-1] == "the shell ends"
    assert not any(line.startswith("{") for line in own)


def test_one_launch_after_the_other(folder: Path, home: Path) -> None:
    # given a script that trains on two ranks, on one, and without a launcher
    run = "$PYTHON -m torch.distributed.run --nproc-per-node"
    lines = [f"{run} 2 train.py 12", f"{run} 1 train.py 15", "$PYTHON train.py 20"]
    done = told("--", "sh", "-ec", "\n".join(lines), cwd=folder, home=home)
    # then all steps are counted, and the last launch is what the session is of
    assert done.code == 0, done.out + done.err
    attempts = {
        (int(rank), int(attempt))
        for rank, attempt, *_ in (
            f.name.split("-") for f in (done.root / "ranks").glob("*[0-9].jsonl")
        )
    }
    assert {attempt for _, attempt in attempts} == {0, 1, 2}
    assert {rank for rank, attempt in attempts if attempt == 0} == {0, 1}
    assert done.summary["exit"]["message"] == "finished"
    assert done.summary["world_size"] == 1
    assert (done.summary["steps"], len(done.summary["ranks"])) == (20, 1)
    assert _counted(done) == 19  # the first began before the probe could see it
    assert any("this launch has ended at step" in line for line in done.out.splitlines())


def test_what_a_launcher_starts_anew_goes_on_with_its_launch(folder: Path, home: Path) -> None:
    # given a launch before, and one whose ranks fail once
    (folder / "twice.py").write_text(
        "import os, sys\n"
        "sys.argv[1:] = ['14'] if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1' else "
        "['16', 'raise']\n"
        "exec(compile(open('train.py').read(), 'train.py', 'exec'))\n"
    )
    run = "$PYTHON -m torch.distributed.run --max-restarts 1 --nproc-per-node 2 twice.py"
    lines = ["$PYTHON train.py 30", run]
    # a store of its own for each attempt: gloo would find the addresses of the one before in it
    alone = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = told("--", "sh", "-ec", "\n".join(lines), cwd=folder, home=home, **alone)
    # then both of its attempts count, and not the launch before
    assert done.code == 0, done.out + done.err
    assert [minute.get("first_attempt") for minute in minutes_of(done)] == [0, 1]
    assert done.summary["world_size"] == 2
    assert 13 < _counted(done) < 29


def minutes_of(run: Told) -> list[dict[str, Any]]:
    lines = (run.root / "history.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "minute"]


def _counted(run: Told) -> int:
    """Steps of the launch that the session is of, by what the analyst has added up."""
    last = minutes_of(run)[-1]["first_attempt"]
    sums = [m for m in minutes_of(run) if m["first_attempt"] == last]
    return sum(m["steps"] + m["warmup_steps"] for m in sums)


@pytest.mark.parametrize(
    ("how", "message", "code"),
    [
        ("raise", "rank 1 failed: ValueError: on purpose", 1),
        ("leave", "rank 1 exited with status 3", 3),
    ],
)
def test_the_rank_that_fails_first_is_named(
    folder: Path, home: Path, how: str, message: str, code: int
) -> None:
    done = told("--", "bash", "train.sh", "1000", how, cwd=folder, home=home)

    assert done.code == 1
    end = done.summary["exit"]
    assert (end["message"], end["rank"], end["code"]) == (message, 1, code)
    shown = [line.strip() for line in done.out.splitlines()]
    if how == "raise":
        at = shown.index("Traceback (most recent call last):")
        assert shown[at + 1].startswith('File "') and "train.py" in shown[at + 1]
        assert "_torchtop" not in done.out
        assert "ValueError: on purpose" in shown
    assert done.left == []


def test_ranks_that_refuse_their_arguments(folder: Path, home: Path) -> None:
    """Before they import torch; and the shell script does not care."""
    (folder / "args.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.parse_args()\nimport torch\n"
    )
    run = "$PYTHON -m torch.distributed.run --nproc-per-node 2 args.py --lr 1; echo done"
    done = told("--", "sh", "-c", run, cwd=folder, home=home)

    assert done.code == 1, done.out
    assert done.summary["exit"]["message"] in [f"rank {r} exited with status 2" for r in (0, 1)]
    assert any("unrecognized arguments: --lr 1" in line for line in done.out.splitlines())
    assert done.summary["steps"] is None


STANDS_IN = """
import os, subprocess, sys
ranks = []
for rank in range(2):
    who = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
    command = [sys.executable, "train.py", "15", *sys.argv[2:]]
    ranks.append(subprocess.Popen(command, env={**os.environ, **who, **where}))
codes = [rank.wait() for rank in ranks]
print("launcher ends", codes)
sys.exit(max(codes))
"""


def test_a_launcher_that_nobody_knows(folder: Path, home: Path) -> None:
    """One that starts processes with the variables of a rank, as many do."""
    (folder / "launch.py").write_text(STANDS_IN)
    port = str(_free_port())

    done = told("--", bare_python(), "launch.py", port, cwd=folder, home=home)

    assert done.code == 0, done.out + done.err
    assert (done.summary["steps"], done.summary["world_size"]) == (15, 2)
    assert "launcher ends [0, 0]" in done.log("command/attempt_0/0/stdout.log")
    assert len(lines_of(done.log("ranks/attempt_0/1/stdout.log"))) == 1
    ranks = [e for e in done.events if e["kind"] == "process" and e["role"] == "rank"]
    assert len(ranks) == 2


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_accelerate_launches(folder: Path, home: Path) -> None:
    pytest.importorskip("accelerate")
    (folder / "accelerated.py").write_text(ACCELERATED)
    launch = [bare_python(), "-m", "accelerate.commands.launch", "--multi_gpu"]
    launch += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--main_process_port", str(_free_port())]

    done = told("--", *launch, "accelerated.py", cwd=folder, home=home, ACCELERATE_USE_CPU="1")

    assert done.code == 0, done.out + done.err
    assert (done.summary["steps"], done.summary["world_size"]) == (20, 2)
    assert [rank["loader"]["batch_size"] for rank in done.summary["ranks"]] == [2, 2]


ACCELERATED = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.ones(80, 4))
loader = torch.utils.data.DataLoader(data, batch_size=2)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for (x,) in loader:
    accelerator.backward(net(x).sum())
    optimizer.step()
    optimizer.zero_grad()
"""


def test_one_process_that_fails_shows_its_traceback(folder: Path, home: Path) -> None:
    done = told("--", bare_python(), "train.py", "x", cwd=folder, home=home)

    assert done.code == 1
    assert "the command exited with status 1: ValueError: invalid literal" in done.out
    assert "Traceback (most recent call last):" in done.out


def test_a_workload_of_torchtop_toml_may_be_a_command(home: Path, tmp_path: Path) -> None:
    (tmp_path / "torchtop.toml").write_text(
        "[workloads.mine]\n"
        'command = ["sh", "-c", "echo $WHAT $* in $(basename $PWD)", "sh"]\n'
        'args = ["a b"]\n'
        'env = { WHAT = "it" }\n'
        'cwd = "sub"\n'
        "options = { lr = 0.1 }\n"
    )
    (tmp_path / "torchtop.toml").chmod(0o600)
    (tmp_path / "sub").mkdir()

    refused = torchtop("run", "--no-tui", "mine", home=home, cwd=tmp_path)
    done = told("--yes", "mine", "-o", "lr=0.2", cwd=tmp_path, home=home)

    assert refused.returncode == 2
    assert "agree to it once with --yes" in refused.stderr
    assert done.code == 0, done.out + done.err
    assert done.log("command/attempt_0/0/stdout.log") == "it a b --lr=0.2 in sub\n"
    assert done.summary["workload"] == "mine"


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        (["--nproc", "2"], "--nproc does not go with run -- COMMAND"),
        (["--python", "python3"], "--python does not go with run -- COMMAND"),
        (["-o", "a=b"], "-o does not go with run -- COMMAND"),
        (["-m"], "-m does not go with run -- COMMAND"),
    ],
)
def test_what_is_not_for_a_command_is_refused(
    words: list[str], told_of: str, home: Path, tmp_path: Path
) -> None:
    done = torchtop("run", *words, "--", "true", home=home, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told_of in done.stderr


@pytest.mark.parametrize(
    ("command", "told_of"),
    [
        (["nosuchprogram"], "there is no command nosuchprogram"),
        (["train.sh"], "train.sh is no program; give the one that runs it: run -- bash train.sh"),
        (["./train.py"], "run -- python ./train.py"),
    ],
)
def test_a_command_that_is_not_there_is_told(
    command: list[str], told_of: str, folder: Path, home: Path
) -> None:
    done = torchtop("run", "--", *command, home=home, cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told_of in done.stderr


def test_a_secret_in_a_command_is_not_passed_on(home: Path, tmp_path: Path) -> None:
    done = told("--", "echo", "--api-key", "abc123", "run", cwd=tmp_path, home=home)

    assert done.summary["workload"] == "echo --api-key '***' run"
    assert "abc123" not in (done.root / "summary.json").read_text()
    assert "abc123" not in (done.root / "summary.md").read_text()
