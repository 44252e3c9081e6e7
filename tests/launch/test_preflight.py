"""What is refused before anything starts, in one line, leaving nothing behind."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from torchtop.launch import preflight, start
from torchtop.launch.interpreter import Interpreter, inspect
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.start import start_session


def spec(tmp_path: Path, target: str = "train.py", **fields: object) -> LaunchSpec:
    given: dict[str, object] = {"source": "script", "cwd": str(tmp_path), **fields}
    return LaunchSpec("t", target, target=target, **given)  # type: ignore[arg-type]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('fine')\n")
    return path


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter without any package."""
    root = tmp_path_factory.mktemp("bare")
    venv.create(root, with_pip=False)
    return str(root / "bin" / "python")


def refusal(wanted: LaunchSpec, home: Path) -> LaunchError:
    """The error of a start, after a look at what it left."""
    with pytest.raises(LaunchError) as caught:
        start_session(wanted)
    assert not home.exists() or list((home / "sessions").iterdir()) == []
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.fault(21, "a missing script", "one line, before anything starts")
def test_a_missing_script(tmp_path: Path, state_home: Path) -> None:
    error = refusal(spec(tmp_path, "nosuch.py"), state_home)
    assert str(error) == "there is no script nosuch.py"
    assert error.exit_status == 2


@pytest.mark.fault(21, "a directory", "one line, before anything starts")
def test_a_directory(tmp_path: Path, state_home: Path) -> None:
    (tmp_path / "folder").mkdir()
    error = refusal(spec(tmp_path, "folder"), state_home)
    assert str(error) == "folder is a directory, not a Python script"


@pytest.mark.fault(21, "a syntax error", "one line, before anything starts")
@pytest.mark.parametrize(
    ("source", "line"), [(b"x = 1\nif x\n", 2), (b"\xff = 1\n", None), (b"x = '\x00'\n", None)]
)
def test_a_syntax_error_is_the_scripts_own(
    tmp_path: Path, state_home: Path, source: bytes, line: int | None
) -> None:
    (tmp_path / "bad.py").write_bytes(source)
    error = refusal(spec(tmp_path, "bad.py"), state_home)
    assert error.exit_status == 1
    assert str(error).startswith(f"bad.py, line {line}: syntax error" if line else "bad.py")


def test_another_pythons_syntax_is_judged_by_that_python(tmp_path: Path, script: Path) -> None:
    # given an interpreter that says it is of another version than this one
    other = Interpreter(sys.executable, "3.8.1", None)
    preflight._check_syntax(script, "train.py", other)
    script.write_text("x = 1\nif x\n")
    with pytest.raises(LaunchError, match=r"train\.py, line 2: syntax error"):
        preflight._check_syntax(script, "train.py", other)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such.module", "finds no module no.such.module"),
        ("package", "package is a package without __main__.py"),
        ("package.train", None),
    ],
)
def test_modules_are_looked_for_without_running_them(
    tmp_path: Path, name: str, says: str | None
) -> None:
    # given a package that must not be imported by a mere look
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('it was run')")
    (package / "train.py").write_text("raise SystemExit('it was run')")
    wanted = spec(tmp_path, name, source="module")
    if says is None:
        preflight.check(wanted)
    else:
        with pytest.raises(LaunchError, match=says):
            preflight.check(wanted)


@pytest.mark.fault(21, "no torch", "one line, before anything starts")
def test_no_torch(tmp_path: Path, state_home: Path, script: Path, bare_python: str) -> None:
    error = refusal(spec(tmp_path, python=bare_python), state_home)
    assert str(error) == (
        f"PyTorch is not installed for {bare_python}: pip install torch, "
        "or choose another interpreter with --python"
    )


def test_no_interpreter(tmp_path: Path, state_home: Path, script: Path) -> None:
    assert "choose one with --python" in str(
        refusal(spec(tmp_path, python="/no/such/python"), state_home)
    )
    impostor = tmp_path / "python"
    impostor.write_text("#!/bin/sh\necho hello\n")
    impostor.chmod(0o755)
    assert "does not work as a Python interpreter" in str(
        refusal(spec(tmp_path, python=str(impostor)), state_home)
    )


@pytest.mark.fault(21, "no torchrun", "one line, before anything starts")
def test_no_torchrun(tmp_path: Path, state_home: Path, script: Path) -> None:
    # given a PyTorch that was built without torch.distributed
    venv.create(tmp_path / "other", with_pip=False)
    package = next((tmp_path / "other").glob("lib/python*/site-packages")) / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    python = str(tmp_path / "other" / "bin" / "python")
    error = refusal(spec(tmp_path, python=python), state_home)
    assert str(error).startswith(f"the PyTorch of {python} has no torchrun: ")


@pytest.mark.fault(21, "0 processes", "one line, before anything starts")
@pytest.mark.parametrize("nproc", [0, -1])
def test_no_processes(tmp_path: Path, state_home: Path, script: Path, nproc: int) -> None:
    assert str(refusal(spec(tmp_path, nproc=nproc), state_home)).startswith(f"--nproc {nproc}: ")


@pytest.mark.fault(21, "more processes than GPUs", "one line, before anything starts")
def test_more_processes_than_gpus(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LaunchError, match=r"^--gpus 9: this machine has 2 GPUs$"):
        preflight.check(spec(tmp_path, device="cuda", nproc=9), gpus=2)
    with pytest.raises(LaunchError, match=r"^this machine has no GPU: choose --device cpu$"):
        preflight.check(spec(tmp_path, device="cuda", nproc=1), gpus=0)
    named = spec(tmp_path, device="cuda", nproc=2, gpu_uuids=("GPU-a", "GPU-b"))
    assert preflight.check(named).interpreter.torch_version
    # unless they may share them
    monkeypatch.setenv("TORCHTOP_SHARE_GPUS", "1")
    assert preflight.check(spec(tmp_path, device="cuda", nproc=9), gpus=2).interpreter.torch_version


def test_a_directory_that_is_not_there(tmp_path: Path, state_home: Path) -> None:
    error = refusal(spec(tmp_path, cwd=str(tmp_path / "gone")), state_home)
    assert str(error).endswith("gone does not exist")


def test_a_full_disk(tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_DISK_MINIMUM_BYTES", 1 << 60)
    with pytest.raises(LaunchError, match="MiB are free on the disk of"):
        preflight.check(spec(tmp_path))


def test_a_small_shared_memory_is_only_a_warning(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_SHM_MINIMUM_BYTES", 1 << 60)
    (warning,) = preflight.check(spec(tmp_path)).warnings
    assert "/dev/shm" in warning


def test_a_supervisor_that_cannot_start_leaves_nothing(
    tmp_path: Path, state_home: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "LAUNCH_FILE", "elsewhere.json")
    error = refusal(spec(tmp_path), state_home)
    assert "the supervisor ended at once" in str(error)


@pytest.mark.fault(31, "an unwritable home", "refused before launch")
def test_a_state_directory_that_cannot_be_written(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(LaunchError, match="set TORCHTOP_HOME"):
        start_session(spec(tmp_path))


def test_versions_are_told_without_importing_torch(bare_python: str) -> None:
    own = inspect(sys.executable)
    assert own.is_own
    assert own.torch_version
    assert own.torch_version[0].isdigit()
    other = inspect(bare_python)
    assert not other.is_own
    assert other.version == own.version
    assert other.torch_version is None
