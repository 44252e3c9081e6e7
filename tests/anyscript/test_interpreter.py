"""``--python``: another interpreter trains, in which nothing of torchtop is installed."""

from __future__ import annotations

import os
import subprocess
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from anyscript.commanded import TRAIN, Told, told

OURS = ("torchtop", "torchtop_workloads", "textual", "rich", "psutil", "pynvml", "tomli")
"""What torchtop needs and torch does not."""

STEPS = 30


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with torch and what that needs, by links to where they lie."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.EnvBuilder(symlinks=True).create(folder / "env")
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    (folder / "packages").mkdir()
    for entry in Path(spec.origin).parents[1].iterdir():
        name = entry.name.split("-")[0].split(".")[0]
        if name not in (*OURS, "__pycache__") and not entry.name.endswith(".pth"):
            (folder / "packages" / entry.name).symlink_to(entry)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(f"{folder / 'packages'}\n")
    made = str(folder / "env" / "bin" / "python")
    found = [name for name in OURS if _imports(made, name)]
    if found or not _imports(made, "torch"):
        pytest.skip(f"no interpreter with torch alone can be made here: it has {found}")
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def _imports(python: str, name: str) -> bool:
    run = [python, "-I", "-c", f"import importlib.util as u; exit(not u.find_spec({name!r}))"]
    return subprocess.run(run, check=False).returncode == 0


def check_is_whole(run: Told, ranks: int) -> None:
    """Nothing is missing in what is told of a run."""
    assert run.code == 0, run.out + run.err
    summary = run.summary
    assert (summary["status"], summary["world_size"], summary["steps"]) == ("done", ranks, STEPS)
    assert [rank["rank"] for rank in summary["ranks"]] == list(range(ranks))
    assert summary["probe"]["disabled"] is None
    for rank in summary["ranks"]:
        phases = {name: phase["ms"] for name, phase in rank["phases"].items()}
        assert sum(phases.values()) == pytest.approx(rank["host_step_ms"], rel=0.01)
        assert all(phases[name] > 0 for name in ("data", "forward", "backward", "optimizer"))
        assert rank["loader"]["workers"] == 1
    assert summary["throughput"]["samples_per_s"] > 0
    assert run.left == []


def test_a_run_by_an_interpreter_without_torchtop_is_attributed(
    python: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN + "\nimport torchtop\ntorchtop.log(last=loss)\n")
    words = ("--device", "cpu", "--nproc", "2", "--python", python, "train.py", str(STEPS))

    run = told(*words, cwd=tmp_path, home=home, PYTHONPATH=_checkout())

    check_is_whole(run, 2)


def test_a_command_with_such_an_interpreter_is_attributed(
    python: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    run = told(
        "--", "env", "-u", "NOTHING", python, "train.py", str(STEPS), cwd=tmp_path, home=home
    )

    check_is_whole(run, 1)


def test_another_version_of_torch_is_attributed(home: Path, tmp_path: Path) -> None:
    """The interpreter named by TORCHTOP_TEST_PYTHON, which has another torch."""
    python = os.environ.get("TORCHTOP_TEST_PYTHON")
    if not python:
        pytest.skip("TORCHTOP_TEST_PYTHON names no other interpreter")
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("--device", "cpu", "--nproc", "2", "--python", python, "train.py", str(STEPS))

    check_is_whole(told(*words, cwd=tmp_path, home=home), 2)


def test_without_torch_a_script_runs_once_and_its_end_is_told(home: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    (tmp_path / "other.py").write_text(
        "import os, sys\nprint('RANK' in os.environ, sys.argv)\nsys.exit('went wrong')"
    )

    run = told("--python", python, "other.py", "--lr", "1", cwd=tmp_path, home=home)

    assert run.code == 1
    assert "has no PyTorch: the script is started once" in run.err
    assert run.log("command/attempt_0/0/stdout.log") == (
        "False ['other.py', '--lr', '1']\nwent wrong\n"
    )
    assert run.summary["exit"]["message"] == "rank 0 exited with status 1"
    assert "went wrong" in run.out


@pytest.mark.parametrize("more", [("--nproc", "2"), ("-m",)])
def test_several_ranks_or_a_module_need_a_torchrun(
    home: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    from cli.command import torchtop

    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    (tmp_path / "other.py").write_text("pass")
    target = "other" if "-m" in more else "other.py"

    done = torchtop("run", "--python", python, *more, target, home=home, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("torchtop: PyTorch is not installed for ")


def _checkout() -> str:
    from cli.command import ROOT

    return os.pathsep.join([str(ROOT / "tui"), str(ROOT / "workloads")])
