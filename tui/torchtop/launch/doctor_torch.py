"""What `doctor` asks an interpreter about its torch."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchtop.launch.findings import Finding

if TYPE_CHECKING:
    from torchtop.devices.facts import GpuInventory

_TIMEOUT_S = 30.0
"""Own choice. Importing torch takes 1 to 4 s from a warm disk, and over 9 s from a cold one."""

_OLDEST_TORCH = (2, 1)
"""The oldest that the extra `train` installs."""

_OLDEST_PYTHON = (3, 8)
"""The oldest that the probe loads on."""

_INSTALL = "pip install torch torchvision, or name the interpreter that has them with --python"

# Facts come a line at a time, the cheap ones first: what was told before a hang is kept.
_QUESTION = """
import sys
sys.path[:] = [p for p in sys.path if p]
import importlib.util, json, platform, sysconfig
def tell(**facts):
    print("torchtop:" + json.dumps(facts, default=str), flush=True)
def attempt(ask):
    try:
        return ask()
    except Exception:
        return None
has = {name: importlib.util.find_spec(name) is not None for name in ("torch", "torchvision")}
tell(python=platform.python_version(), scripts=sysconfig.get_path("scripts"), has=has)
try:
    import torch
except BaseException as error:
    tell(import_error="%s: %s" % (type(error).__name__, error))
    sys.exit()
dist = torch.distributed
tell(torch=torch.__version__, cuda=torch.version.cuda, hip=getattr(torch.version, "hip", None))
tell(
    gloo=attempt(lambda: dist.is_available() and dist.is_gloo_available()),
    nccl=attempt(lambda: dist.is_available() and dist.is_nccl_available()),
    nccl_version=attempt(lambda: list(torch.cuda.nccl.version())),
    cudnn=attempt(torch.backends.cudnn.version),
)
tell(gpus=attempt(lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0))
try:
    import torchvision
    tell(torchvision=torchvision.__version__)
except BaseException as error:
    tell(torchvision_error="%s: %s" % (type(error).__name__, error))
tell(done=True)
"""


@dataclass(frozen=True)
class TorchAnswer:
    """What an interpreter said.

    Attributes:
        python: its path; None where there is no such interpreter.
        facts: by the names in the question; fewer if it did not finish.
        error: why it did not finish, or None.
    """

    python: str | None
    facts: dict[str, Any]
    error: str | None = None


def ask(python: str) -> TorchAnswer:
    """Ask an interpreter about its torch, with a time limit. Never raises."""
    path = shutil.which(python)
    if path is None:
        return TorchAnswer(None, {}, f"there is no Python interpreter {python}")
    try:
        # cwd: a json.py in the user's directory must not be taken for the standard module.
        child = subprocess.Popen(
            [path, "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
    except OSError as error:
        return TorchAnswer(path, {}, f"cannot be started: {error.strerror}")
    try:
        output, _ = child.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return TorchAnswer(path, _facts(_end(child)), f"no answer within {_TIMEOUT_S:.0f} s")
    facts = _facts(output)
    failed = not facts.get("done") and "import_error" not in facts
    return TorchAnswer(path, facts, f"ended with status {child.returncode}" if failed else None)


def findings(answer: TorchAnswer, inventory: GpuInventory) -> Iterator[Finding]:
    """What the answer means, on a machine with these GPUs."""
    facts = answer.facts
    yield _python(answer)
    if "python" not in facts:
        return
    yield _torch(answer)
    if facts.get("torch"):
        yield from _cuda(facts, len(inventory.gpus), inventory.cuda_driver)
        yield _gloo(facts)
        yield _torchvision(facts)
        yield _torchrun(answer)


def _end(child: subprocess.Popen[bytes]) -> bytes:
    """End a child and return what it said; one that the kernel will not end is left behind."""
    child.kill()
    try:
        return child.communicate(timeout=0.5)[0]
    except subprocess.TimeoutExpired as error:
        with contextlib.suppress(OSError):
            if child.stdout is not None:
                child.stdout.close()
        return error.stdout or b""


def _facts(output: bytes) -> dict[str, Any]:
    """The facts among what was printed; a site's own start-up code may print as well."""
    facts: dict[str, Any] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        if line.startswith("torchtop:"):
            with contextlib.suppress(ValueError):
                facts.update(json.loads(line.removeprefix("torchtop:")))
    return facts


def _python(answer: TorchAnswer) -> Finding:
    version = answer.facts.get("python")
    if version is None:
        value = answer.error or "no answer"
        return Finding("Python", "fail", value, "name another interpreter with --python")
    value = f"{version} at {answer.python}"
    if _numbers(version) < _OLDEST_PYTHON:
        return Finding("Python", "fail", value, "the probe needs 3.8 or later in the ranks")
    return Finding("Python", "ok", value)


def _torch(answer: TorchAnswer) -> Finding:
    facts = answer.facts
    version = facts.get("torch")
    if not version:
        if not (facts.get("has") or {}).get("torch"):
            return Finding("torch", "fail", "not installed", _INSTALL)
        if "import_error" in facts:
            value = "installed, but cannot be imported"
            return Finding("torch", "fail", value, facts["import_error"])
        value = f"installed; importing it gave {answer.error}"
        return Finding("torch", "warn", value, "a slow disk or a hanging driver: try it by hand")
    if answer.error:
        advice = "asking it about its GPUs took too long: a hanging driver, or a slow disk"
        return Finding("torch", "warn", f"{version}, then {answer.error}", advice)
    if _numbers(version) < _OLDEST_TORCH:
        return Finding("torch", "warn", version, "torchtop is made for 2.1 and later")
    return Finding("torch", "ok", version)


def _cuda(facts: dict[str, Any], gpus: int, driver_cuda: str | None) -> Iterator[Finding]:
    build = facts.get("cuda")
    if not build:
        value = f"none: built for ROCm {facts['hip']}" if facts.get("hip") else "none: a CPU build"
        advice = "install a CUDA build of torch: pytorch.org/get-started/locally"
        yield Finding("CUDA", "fail" if gpus else "info", value, advice if gpus else "")
        return
    seen = facts.get("gpus")
    value = f"built for {build}" + (f", sees {seen} of {gpus} GPUs" if gpus else "")
    if not gpus or seen == gpus:
        yield Finding("CUDA", "ok", value)
    elif seen:
        advice = "CUDA_VISIBLE_DEVICES leaves some out; if that is not meant, unset it"
        yield Finding("CUDA", "info", value, advice)
    else:
        yield Finding("CUDA", "fail", value, _why_unseen(build, driver_cuda))
    yield _cudnn(facts)
    yield _nccl(facts, gpus)


def _why_unseen(build: str, driver_cuda: str | None) -> str:
    # Within a major version of CUDA older drivers work ("minor version compatibility").
    if driver_cuda and _numbers(build)[:1] > _numbers(driver_cuda)[:1]:
        return f"the driver ends at CUDA {driver_cuda}: update it, or install a torch built for it"
    return "see whether CUDA_VISIBLE_DEVICES is empty, and whether nvidia-smi works"


def _cudnn(facts: dict[str, Any]) -> Finding:
    version = facts.get("cudnn")
    if not isinstance(version, int):
        return Finding(
            "cuDNN", "warn", "not found", "convolutions are slow without: reinstall torch"
        )
    # cudnn_version.h: major * 1000 + minor * 100 + patch before 9, major * 10000 since.
    unit = 10000 if version >= 90000 else 1000
    major, rest = divmod(version, unit)
    return Finding("cuDNN", "ok", f"{major}.{rest // 100}.{rest % 100}")


def _nccl(facts: dict[str, Any], gpus: int) -> Finding:
    version = facts.get("nccl_version")
    if not facts.get("nccl"):
        if gpus <= 1:
            return Finding("NCCL", "info", "not in this build")
        advice = "several GPUs need it: install a torch built with NCCL"
        return Finding("NCCL", "warn", "not in this build", advice)
    return Finding("NCCL", "ok", ".".join(map(str, version)) if version else "version N/A")


def _gloo(facts: dict[str, Any]) -> Finding:
    if facts.get("gloo"):
        return Finding("gloo", "ok", "in this build")
    advice = "training on the CPU needs it: install a torch built with gloo"
    return Finding("gloo", "warn", "not in this build", advice)


def _torchvision(facts: dict[str, Any]) -> Finding:
    if version := facts.get("torchvision"):
        return Finding("torchvision", "ok", version)
    if (facts.get("has") or {}).get("torchvision"):
        advice = f"install the torchvision that fits torch {facts['torch']}"
        error = facts.get("torchvision_error") or "no answer in time"
        return Finding("torchvision", "warn", f"cannot be imported: {error}", advice)
    advice = f"the image workloads need it: pip install torch=={facts['torch']} torchvision"
    return Finding("torchvision", "warn", "not installed", advice)


def _torchrun(answer: TorchAnswer) -> Finding:
    """Beside the interpreter first: a virtual environment need not be activated."""
    folders = [Path(answer.python or "").parent, Path(answer.facts.get("scripts") or "/")]
    for folder in folders:
        if found := shutil.which("torchrun", path=str(folder)):
            return Finding("torchrun", "ok", found)
    return Finding("torchrun", "ok", "torch.distributed.run, which every torch has")


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.9.1+cu128`` is (2, 9, 1)."""
    numbers = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
