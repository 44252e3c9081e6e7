"""``torchtop run SCRIPT``: two ranks under torchtop and two under torchrun alone, side by side."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from anyscript.commanded import Told, bare, output_of, told
from cli.command import environment
from probe.staged import bare_python

pytest.importorskip("torch")

CPU = ("--device", "cpu", "--nproc", "2")

LOOK = """
import os, sys
seen = {"name": __name__, "file": __file__, "spec": __spec__ and __spec__.name}
seen |= {"package": __package__, "argv": sys.argv, "path": sys.path, "cwd": os.getcwd()}
seen |= {"flags": str(sys.flags), "globals": sorted(globals()), "orig": sys.orig_argv[1:]}
seen["torch_is_there"] = "torch" in sys.modules
os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"  # read by torch as it is imported
import json, queue
seen |= {"json": json.__file__, "queue": queue.__file__}
import torch
seen["setting"] = torch._C._get_cpp_stacktraces_enabled() if hasattr(
    torch._C, "_get_cpp_stacktraces_enabled") else None
import pickle
import multiprocessing


class Config:
    value = 7


def work(queue, config):
    queue.put((__name__, config.value, sys.argv[1:], os.environ["RANK"]))


if __name__ == "__main__":
    seen["pickled"] = pickle.loads(pickle.dumps(Config())).value, Config.__module__
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    child = context.Process(target=work, args=(results, Config()))
    child.start()
    seen["spawned"] = results.get(timeout=60)
    child.join()
    seen["env"] = {k: v for k, v in os.environ.items()}
    print(repr(seen), flush=True)
"""

FAILS = """
import os, sys
def inner():
    raise ValueError("on rank 1")
def outer():
    inner()
if os.environ["RANK"] == "1":
    outer()
"""

REFUSES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.parse_args()
"""

IMPORTS = "import os\nif os.environ['RANK'] == '1':\n    import nosuchmodule\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def both(words: list[str], cwd: Path, home: Path) -> tuple[list[list[str]], Told]:
    """The ranks' standard output and error under torchrun alone; and the run under torchtop."""
    logs = cwd.parent / f"{cwd.name}-logs"
    flags = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    flags += ["--redirects=3", f"--log-dir={logs}", "--", *words]
    torchrun = [bare_python(), "-m", "torch.distributed.run", *flags]
    plain = bare(*torchrun, cwd=cwd, env=environment(home, PYTHON=bare_python()))
    run = told(*CPU, "--python", bare_python(), *words, cwd=cwd, home=home)
    output_of(plain)
    return _outputs(logs), run


def _outputs(logs: Path) -> list[list[str]]:
    return [
        [(folder / f"{name}.log").read_text() for name in ("stdout", "stderr")]
        for folder in sorted(logs.glob("*/attempt_0/[01]"))
    ]


def _seen(output: str) -> dict[str, Any]:
    """What a rank saw, without what differs between any two runs."""
    seen: dict[str, Any] = ast.literal_eval(output.splitlines()[-1])
    own = ("TORCHTOP_", "CUDA_", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT")
    seen["env"] = {k: v for k, v in seen["env"].items() if not k.startswith(own)}
    return seen


@pytest.mark.parametrize(
    "words",
    [["look.py", "--lr", "0.1", "-m", "--", "--nproc-per-node=9"], ["-m", "package.look", "a"]],
)
def test_a_script_sees_what_it_sees_under_torchrun(
    words: list[str], tmp_path: Path, home: Path
) -> None:
    # given a json.py and a queue.py beside it, which torch can do with
    project = tmp_path / "project"
    (project / "package").mkdir(parents=True)
    (project / "package" / "__init__.py").touch()
    (project / "package" / "near.py").write_text("VALUE = 3")
    (project / "look.py").write_text(LOOK)
    (project / "package" / "look.py").write_text(LOOK + "\nfrom .near import VALUE\n")
    for name in ("json", "queue"):
        (project / f"{name}.py").write_text(_standard(name))

    plain, run = both(words, project, home)

    assert run.code == 0, run.out + run.err
    outputs = _outputs(run.root / "logs")
    for rank in (0, 1):
        seen, wanted = _seen(outputs[rank][0]), _seen(plain[rank][0])
        for name in wanted:
            assert (name, seen[name]) == (name, wanted[name])
    assert [err for _, err in outputs] == [err for _, err in plain]
    seen = _seen(outputs[0][0])
    assert seen["torch_is_there"] is False
    assert seen["json"] == str(project / "json.py")
    assert seen["spawned"][0] == "__mp_main__"


def _standard(name: str) -> str:
    """A module of the user's that does what the standard one of that name does."""
    return (
        "import importlib.util, os, sys\n"
        f"where = os.path.join(os.path.dirname(os.__file__), {name!r})\n"
        "file = where + '/__init__.py' if os.path.isdir(where) else where + '.py'\n"
        f"spec = importlib.util.spec_from_file_location({name!r}, file)\n"
        "module = importlib.util.module_from_spec(spec)\n"
        f"sys.modules[{name!r}] = module\n"
        "spec.loader.exec_module(module)\n"
        "module.__file__ = __file__\n"
    )


@pytest.mark.parametrize(
    ("text", "args", "cause", "message"),
    [
        (FAILS, [], "exception", "rank 1 failed: ValueError: on rank 1"),
        (IMPORTS, [], "exception", "rank 1 failed: ModuleNotFoundError: No module named"),
        (REFUSES, ["--lr", "x"], "exit_code", "exited with status 2"),
    ],
)
def test_a_script_fails_as_under_torchrun(
    text: str, args: list[str], cause: str, message: str, tmp_path: Path, home: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "fails.py").write_text(text)

    plain, run = both(["fails.py", *args], project, home)

    assert run.code == 1
    end = run.summary["exit"]
    assert end["cause"] == cause
    assert message in end["message"]
    outputs = _outputs(run.root / "logs")
    failed = end["rank"]
    assert failed == 1 or text is REFUSES
    assert outputs[failed] == plain[failed]
    # and what a person is shown is what Python printed, without a frame of torchtop's
    shown = [line.strip() for line in run.out.splitlines()]
    for line in plain[failed][1].splitlines():
        assert line.strip() in shown, line
    assert "rank.py" not in run.out


def test_one_rank_that_joins_by_itself(tmp_path: Path, home: Path) -> None:
    """A script that is meant to be run without torchrun, on one rank."""
    (tmp_path / "alone.py").write_text(
        "import torch, torch.distributed as dist\n"
        f"dist.init_process_group('gloo', 'file://{tmp_path}/store', rank=0, world_size=1)\n"
        "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for _ in range(20):\n"
        "    net(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
        "dist.destroy_process_group()\n"
    )

    run = told("--device", "cpu", "--nproc", "1", "alone.py", cwd=tmp_path, home=home)

    assert run.code == 0, run.out
    assert run.summary["steps"] == 20
    assert run.summary["hints"] == []
    assert json.loads((run.root / "session.json").read_text())["argv"] == ["alone.py"]
