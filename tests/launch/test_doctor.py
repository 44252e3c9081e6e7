"""What doctor says of this machine, and of machines that tests cannot have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchtop.devices.facts import GpuFact, GpuInventory
from torchtop.launch import doctor, doctor_host, doctor_torch
from torchtop.launch.doctor import Finding, render, to_json, worst
from torchtop.launch.doctor_torch import TorchAnswer

ROOT = Path(__file__).resolve().parents[2]
GPUS = (GpuFact(0, "GPU-a", "H200"), GpuFact(1, "GPU-b", "H200"))
TWO = GpuInventory("580.1", "13.0", None, GPUS)
NONE = GpuInventory(error="no NVIDIA driver on this machine")
FACTS = {
    "python": "3.11.7",
    "scripts": "/nowhere",
    "has": {"torch": True, "torchvision": True},
    "torch": "2.9.1+cu128",
    "cuda": "12.8",
    "gloo": True,
    "nccl": True,
    "nccl_version": [2, 27, 5],
    "cudnn": 91002,
    "gpus": 2,
    "torchvision": "0.24.1",
    "done": True,
}


def about_torch(inventory: GpuInventory = TWO, **changed: Any) -> dict[str, Finding]:
    """Findings about an interpreter that answers with `FACTS`, some of them changed."""
    answer = TorchAnswer("/nowhere/bin/python", {**FACTS, **changed})
    return {finding.name: finding for finding in doctor_torch.findings(answer, inventory)}


def about_gpus(inventory: GpuInventory) -> dict[str, Finding]:
    return {finding.name: finding for finding in doctor._gpus(inventory)}


def one(name: str) -> Finding:
    """What a look at the host finds, where it finds one thing."""
    (finding,) = doctor_host.CHECKS[name]()
    return finding


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_this_machine_is_examined_without_loading_torch_or_the_screen(tmp_path: Path) -> None:
    # given
    code = (
        "import json, sys; sys.path[:0] = json.loads(sys.argv[1])\n"
        "from torchtop.launch import doctor\n"
        "found = doctor.to_json(doctor.examine())\n"
        "found['loaded'] = sorted({'torch', 'textual', 'pynvml'} & set(sys.modules))\n"
        "print(json.dumps(found, allow_nan=False))"
    )
    # when
    roots = json.dumps([str(ROOT / "tui"), str(ROOT / "workloads")])
    run = subprocess.run(
        [sys.executable, "-I", "-c", code, roots],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TORCHTOP_HOME": str(tmp_path / "home")},
        check=True,
    )
    # then
    found = json.loads(run.stdout)
    names = [finding["name"] for finding in found["findings"]]
    assert found["loaded"] == []
    assert len(names) == len(set(names))
    assert {"platform", "torchtop", "Python", "torch", "GPUs", *(doctor_host.CHECKS)} - set(
        names
    ) == {"terminal"}
    assert {"colours", "encoding"} <= set(names)
    for finding in found["findings"]:
        assert "could not be looked at" not in finding["value"]
        assert "\n" not in finding["value"] + finding["advice"]
        assert finding["status"] in ("ok", "info") or finding["advice"]
    assert not (tmp_path / "home").exists()


def test_an_interpreter_without_torch_is_told_what_to_install(tmp_path: Path) -> None:
    # given an interpreter that sees no third-party package
    python = script(tmp_path / "python", f'exec "{sys.executable}" -I -S "$@"')
    # when
    answer = doctor_torch.ask(python)
    # then
    found = {finding.name: finding for finding in doctor_torch.findings(answer, NONE)}
    assert found["Python"].status == "ok"
    assert (found["torch"].status, found["torch"].value) == ("fail", "not installed")
    assert "pip install torch" in found["torch"].advice
    assert "torchrun" not in found


def test_no_such_interpreter_is_one_failure() -> None:
    answer = doctor_torch.ask("no-such-python")
    (finding,) = doctor_torch.findings(answer, NONE)
    assert finding.status == "fail"
    assert finding.value == "there is no Python interpreter no-such-python"


def test_a_program_that_is_no_interpreter_is_one_failure(tmp_path: Path) -> None:
    answer = doctor_torch.ask(script(tmp_path / "python", "exit 3"))
    (finding,) = doctor_torch.findings(answer, NONE)
    assert (finding.name, finding.status, finding.value) == (
        "Python",
        "fail",
        "ended with status 3",
    )


def test_what_was_told_before_a_hang_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an interpreter that tells one fact and then waits for ever
    monkeypatch.setattr(doctor_torch, "_TIMEOUT_S", 0.5)
    told = json.dumps({"python": "3.11.7", "has": {"torch": True}})
    python = script(tmp_path / "python", f"echo noise; echo 'torchtop:{told}'; exec sleep 600")
    # when
    answer = doctor_torch.ask(python)
    # then
    found = {finding.name: finding for finding in doctor_torch.findings(answer, NONE)}
    assert found["Python"].status == "ok"
    assert found["torch"].status == "warn"
    assert "no answer within" in found["torch"].value


def test_a_json_module_in_the_current_directory_has_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    python = script(tmp_path / "python", f'exec "{sys.executable}" -S "$@"')
    assert doctor_torch.ask(python).facts["python"].startswith("3.")


def test_a_machine_with_everything_has_only_ok() -> None:
    found = about_torch()
    assert {finding.status for finding in found.values()} == {"ok"}
    assert found["CUDA"].value == "built for 12.8, sees 2 of 2 GPUs"
    assert found["cuDNN"].value == "9.10.2"
    assert found["NCCL"].value == "2.27.5"


def test_cudnn_8_is_read_by_its_own_scheme() -> None:
    assert about_torch(cudnn=8902)["cuDNN"].value == "8.9.2"


@pytest.mark.parametrize(
    ("changed", "name", "status", "words"),
    [
        ({"cuda": None}, "CUDA", "fail", "install a CUDA build"),
        ({"gpus": 0}, "CUDA", "fail", "CUDA_VISIBLE_DEVICES"),
        ({"gpus": 0, "cuda": "14.0"}, "CUDA", "fail", "the driver ends at CUDA 13.0: update it"),
        ({"gpus": 1}, "CUDA", "info", "CUDA_VISIBLE_DEVICES leaves some out"),
        ({"nccl": False}, "NCCL", "warn", "several GPUs need it"),
        ({"gloo": False}, "gloo", "warn", "training on the CPU needs it"),
        ({"cudnn": None}, "cuDNN", "warn", "reinstall torch"),
        ({"torch": "1.13.1"}, "torch", "warn", "2.1 and later"),
        ({"python": "3.7.16"}, "Python", "fail", "3.8 or later"),
        ({"torchvision": None}, "torchvision", "warn", "that fits torch 2.9.1+cu128"),
        (
            {"torchvision": None, "has": {"torch": True}},
            "torchvision",
            "warn",
            "pip install torch=",
        ),
    ],
)
def test_a_lack_has_its_advice(changed: dict[str, Any], name: str, status: str, words: str) -> None:
    finding = about_torch(**changed)[name]
    assert finding.status == status
    assert words in finding.advice


def test_a_cpu_build_without_gpus_is_no_fault() -> None:
    found = about_torch(NONE, cuda=None, nccl=False, gpus=0)
    assert found["CUDA"].status == "info"
    assert worst(list(found.values())) == "info"


def test_a_torch_that_cannot_be_imported_says_why() -> None:
    found = about_torch(torch=None, import_error="ImportError: libcudart.so.12: cannot open")
    assert (found["torch"].status, "libcudart.so.12" in found["torch"].advice) == ("fail", True)


def test_no_gpu_is_a_fact_and_a_hidden_one_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_nvidia_on_pci", lambda: False)
    assert about_gpus(NONE)["GPUs"].status == "info"
    monkeypatch.setattr(doctor, "_nvidia_on_pci", lambda: True)
    assert about_gpus(NONE)["GPUs"].status == "fail"
    assert "--gpus all" in about_gpus(NONE)["GPUs"].advice


def test_gpm_says_whether_hardware_or_permission_is_missing() -> None:
    able = GpuFact(0, "GPU-a", "H200", gpm=True)
    refused = GpuFact(1, "GPU-b", "H200", gpm_error="no permission: add CAP_SYS_ADMIN")
    assert about_gpus(GpuInventory(gpus=(able,)))["GPM"].status == "ok"
    assert about_gpus(TWO)["GPM"].status == "info"
    partly = about_gpus(GpuInventory(gpus=(able, refused)))["GPM"]
    assert (partly.status, partly.advice) == ("warn", "no permission: add CAP_SYS_ADMIN")
    assert "on 1 of 2 GPUs" in partly.value


def test_a_lost_gpu_is_a_failure() -> None:
    found = about_gpus(GpuInventory("580.1", None, None, (*GPUS, GpuFact(2))))
    assert found["GPUs"].status == "fail"
    assert "lost GPU 2" in found["GPUs"].advice


def test_a_low_limit_of_open_files_is_told() -> None:
    # given a process with a low limit
    code = (
        "import resource, sys; sys.path[:0] = sys.argv[1:]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))\n"
        "from torchtop.launch import doctor_host\n"
        "(f,) = doctor_host.CHECKS['open files'](); print(f.status, '|', f.value, '|', f.advice)"
    )
    # when
    run = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "tui"), str(ROOT / "workloads")],
        capture_output=True,
        text=True,
        check=True,
    )
    # then
    assert run.stdout.startswith("warn | 256, at most 512 | ")
    assert run.stdout.rstrip().endswith("ulimit -n 512")


def test_a_state_directory_that_cannot_be_written_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "file/home"))
    finding = one("state")
    assert finding.status == "fail"
    assert "set TORCHTOP_HOME" in finding.advice


def test_a_state_directory_open_to_others_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path))
    assert f"chmod 700 {tmp_path}" in one("state").advice


@pytest.mark.parametrize(
    ("environment", "status", "value"),
    [
        ({"TERM": "xterm-256color"}, "ok", "256"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "ok", "24 bit"),
        ({"TERM": "xterm"}, "warn", "16 or fewer"),
        ({"TERM": "dumb"}, "warn", "none"),
        ({}, "warn", "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "info", "off"),
    ],
)
def test_colours_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], status: str, value: str
) -> None:
    for name in ("TERM", "COLORTERM", "NO_COLOR", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    colours, _ = doctor_host.CHECKS["terminal"]()
    assert colours.status == status
    assert colours.value.startswith(value)


def test_the_last_file_of_logind_decides(tmp_path: Path) -> None:
    # given
    def put(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    read = doctor_host.logind_setting
    assert read("KillUserProcesses", tmp_path) is None
    # then
    put("etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n")
    assert read("KillUserProcesses", tmp_path) is None
    put("etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\n")
    assert read("KillUserProcesses", tmp_path) == "no"
    put("usr/lib/systemd/logind.conf.d/50-site.conf", "[Login]\nKillUserProcesses = Yes\n")
    assert read("KillUserProcesses", tmp_path) == "yes"
    put("etc/systemd/logind.conf.d/50-site.conf", "[Login]\n")
    assert read("KillUserProcesses", tmp_path) == "no"


def test_a_look_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise OSError("no /proc here")

    (finding,) = doctor._guarded("memory", broken)
    assert (finding.name, finding.status) == ("memory", "warn")
    assert "no /proc here" in finding.value


SOME = [
    Finding("torch", "ok", "2.9.1"),
    Finding("open files", "warn", "256", "ulimit -n 512"),
    Finding("GPUs", "fail", "lost\x1b[31m"),
]


def test_the_text_is_aligned_and_counts() -> None:
    assert render(SOME, ascii_only=False).splitlines() == [
        "✓ torch       2.9.1",
        "! open files  256",
        "              → ulimit -n 512",
        r"✗ GPUs        lost\x1b[31m",
        "1 problem, 1 warning",
    ]


def test_the_text_can_do_with_ascii() -> None:
    text = render([*SOME, Finding("state", "info", "/daß")], ascii_only=True)
    assert text.isascii()
    assert text.startswith("+ torch       2.9.1\n! open files")


@pytest.mark.parametrize(("encoding", "plain"), [("utf-8", False), ("ascii", True)])
def test_the_encoding_of_the_output_chooses_the_symbols(
    monkeypatch: pytest.MonkeyPatch, encoding: str, plain: bool, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w", encoding=encoding) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert render(SOME).isascii() is plain


def test_the_json_form_has_the_worst_status() -> None:
    assert to_json(SOME)["status"] == "fail"
    assert to_json(SOME[:2])["status"] == "warn"
    assert to_json([])["status"] == "ok"
    assert to_json(SOME)["findings"][1] == {
        "name": "open files",
        "status": "warn",
        "value": "256",
        "advice": "ulimit -n 512",
    }
