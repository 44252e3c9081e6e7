"""The GPUs, asked once, whatever the driver or the user's folder does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchtop.devices import facts
from torchtop.devices.facts import GpuFact, query_gpus
from torchtop.launch import boot

ROOTS = [str(Path(__file__).parents[2] / "tui"), str(Path(__file__).parents[1])]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The asking process runs this code instead."""
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {ROOTS!r}\n{code}"]
    monkeypatch.setattr(boot, "command", lambda _: command)


def test_this_machine_answers() -> None:
    inventory = query_gpus()

    if Path("/dev/nvidiactl").exists():
        assert inventory.gpus
    else:
        assert inventory.gpus == ()
        assert "NVIDIA driver" in (inventory.error or "")


def test_modules_in_the_users_folder_do_not_break_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "queue", "ctypes", "pynvml", "torchtop"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)

    assert "the process that asks" not in (query_gpus().error or "")


def test_the_answer_crosses_the_process_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    child(
        monkeypatch,
        "from devices.fake_pynvml import FakePynvml; sys.modules['pynvml'] = FakePynvml(gpus=1)\n"
        "print('the library says hello')\n"
        "from torchtop.devices.inventory import main; main()",
    )

    inventory = query_gpus()

    assert inventory.driver == "580.159.04"
    assert inventory.gpus == (
        GpuFact(
            index=0,
            uuid="GPU-0",
            name="NVIDIA H200",
            memory_total_bytes=1000,
            power_limit_w=700.0,
            sm_clock_max_mhz=1980,
            gpm=True,
            nvlink_links=18,
            pci="00000000:19:00.0",
            gpm_error=None,
            mig=False,
        ),
    )


def test_a_driver_that_hangs_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import signal; signal.pause()")

    assert "did not answer within" in (query_gpus(timeout_s=0.2).error or "")


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "raise SystemExit(3)",
        "print('[]')",
        'print(\'{"gpus": [{"nonsense": 1}]}\')',
    ],
)
def test_a_child_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    child(monkeypatch, code)

    inventory = query_gpus()

    assert inventory.gpus == ()
    assert "the process that asks" in (inventory.error or "")


def test_a_missing_interpreter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "command", lambda _: ["/nonexistent/python"])

    assert "cannot start" in (query_gpus().error or "")


def test_nothing_here_loads_torch_or_the_screen() -> None:
    names = [path.stem for path in Path(facts.__file__).parent.glob("*.py")]
    imports = "".join(f"import torchtop.devices.{name}\n" for name in names if name != "__init__")
    code = (
        f"import sys; sys.path.insert(0, {ROOTS[0]!r})\n{imports}"
        "heavy = {'torch', 'textual', 'rich', 'asyncio', 'multiprocessing'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    result = run(code)

    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_asking_for_facts_loads_no_driver_code_here() -> None:
    code = (
        f"import sys; sys.path.insert(0, {ROOTS[0]!r})\n"
        "from torchtop.devices.facts import query_gpus; query_gpus()\n"
        "print('pynvml' in sys.modules)"
    )

    result = run(code)

    assert result.stdout == "False\n"
