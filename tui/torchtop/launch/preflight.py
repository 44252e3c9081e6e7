"""What can be known to be wrong before anything is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from torchtop.launch import interpreter
from torchtop.launch.disk import LOW_BYTES
from torchtop.launch.interpreter import Interpreter
from torchtop.launch.sharing import shared_gpus
from torchtop.launch.spec import SCRIPT_STATUS, LaunchError, LaunchSpec
from torchtop.session.paths import home
from torchtop.session.room import RESERVE_BYTES
from torchtop.session.there import exists, is_dir, is_file

_DISK_MINIMUM_BYTES = 2 * RESERVE_BYTES
"""A day of one rank is under 100 MB of records; with less than the reserve none is written."""

_SHM_MINIMUM_BYTES = 1 << 30
"""Containers come with 64 MiB of /dev/shm by default; data-loader workers pass batches through."""

_CHECK_TIMEOUT_S = 20.0

_COMPILE = """
import sys
name = sys.argv[1]
try:
    compile(open(name, "rb").read(), name, "exec", dont_inherit=True)
except SyntaxError as error:
    print("%s\\t%s" % (error.lineno or 0, error.msg))
except ValueError as error:
    print("0\\t%s" % error)
"""

_FIND_MODULE = """
import sys
sys.path[:] = [p for p in sys.path if p]
import os
name = sys.argv[1]
path = [os.getcwd()] + sys.path
spec = None
def find(name, path):
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec and find_spec(name, path)
        if spec:
            return spec
parts = name.split(".")
for i in range(len(parts)):
    spec = find(".".join(parts[: i + 1]), path)
    if spec is None:
        break
    path = list(spec.submodule_search_locations or [])
if spec is not None and spec.submodule_search_locations is not None:
    spec = find(name + ".__main__", path)
    print("ok" if spec else "package")
else:
    print("ok" if spec else "missing")
"""


@dataclass(frozen=True)
class Readiness:
    """What a launch that can begin looks like.

    Attributes:
        interpreter: the ranks' interpreter.
        warnings: what may go wrong all the same, a line each.
    """

    interpreter: Interpreter
    warnings: tuple[str, ...] = ()


def check(spec: LaunchSpec, gpus: int | None = None) -> Readiness:
    """Check a launch before anything is started.

    Args:
        spec: what is to be run.
        gpus: how many GPUs this machine has, by one who has asked NVML; when omitted, those that
            the spec names, or else as many as there are device files.

    Raises:
        LaunchError: it cannot work; one line that says what to do.
    """
    if spec.nproc < 1:
        raise LaunchError(f"--nproc {spec.nproc}: at least one process is needed")
    cwd = Path(spec.cwd).expanduser()
    if not is_dir(cwd):
        raise LaunchError(f"the working directory {cwd} does not exist")
    known = gpus if gpus is not None else len(spec.gpu_uuids) or count_gpus()
    _check_devices(spec, known)
    _check_disk(spec)
    if spec.source == "command":
        _check_command(spec, cwd)
        return Readiness(interpreter.inspect(spec.python), tuple(_warnings(spec)))
    if not spec.is_module:
        _check_is_file(cwd / spec.target, spec.target)
    found = interpreter.inspect(spec.python)
    if found.torch_root is None and not spec.direct:
        raise LaunchError(
            f"PyTorch is not installed for {found.path}: pip install torch, or choose another "
            "interpreter with --python"
        )
    if not found.has_torchrun and not spec.direct:
        raise LaunchError(
            f"the PyTorch of {found.path} has no torchrun: install one that was built with "
            "torch.distributed, or choose another interpreter with --python"
        )
    if spec.source == "builtin":
        pass  # It ships with torchtop and is staged for any interpreter.
    elif spec.is_module:
        _check_module(spec.target, cwd, found)
    else:
        _check_syntax(cwd / spec.target, spec.target, found)
    return Readiness(found, tuple(_warnings(spec)))


def may_share_gpus() -> bool:
    """Whether built-in workloads may run several ranks on a GPU, for tries on too few of them.

    NCCL has such ranks talk through the loopback network, and they take turns at computing: it
    shows what is told of ranks, not how fast they are. ``TORCHTOP_SHARE_GPUS=1`` allows it.
    """
    return os.environ.get("TORCHTOP_SHARE_GPUS") == "1"


def count_gpus() -> int:
    """How many GPUs there are device files for, without asking the driver."""
    try:
        names = os.listdir("/dev")  # noqa: PTH208 - names only
    except OSError:
        return 0
    return sum(re.fullmatch(r"nvidia\d+", name) is not None for name in names)


def _check_command(spec: LaunchSpec, cwd: Path) -> None:
    """Whether there is such a program, as the system will look for it."""
    name = spec.target
    if "/" not in name and shutil.which(name, path=spec.env.get("PATH")):
        return
    path = cwd / name
    if "/" in name and is_file(path) and os.access(path, os.X_OK):
        return
    if is_file(path):
        by = "python" if name.endswith(".py") else "bash"
        raise LaunchError(f"{name} is no program; give the one that runs it: run -- {by} {name}")
    raise LaunchError(f"there is no command {name}")


def _check_devices(spec: LaunchSpec, gpus: int) -> None:
    if spec.device != "cuda":
        return
    if gpus == 0:
        raise LaunchError("this machine has no GPU: choose --device cpu")
    if spec.nproc > gpus and not may_share_gpus():
        machine = f"this machine has {gpus} GPU{'s' if gpus > 1 else ''}"
        raise LaunchError(f"--gpus {spec.nproc}: {machine}")


def _check_disk(spec: LaunchSpec) -> None:
    free = _free_bytes(_place(spec))
    if free is not None and free < _DISK_MINIMUM_BYTES:
        variable = "TMPDIR" if spec.ephemeral else "TORCHTOP_HOME"
        raise LaunchError(
            f"only {free >> 20} MiB are free on the disk of {_place(spec)}: "
            f"make room, or set {variable} to another disk"
        )


def _place(spec: LaunchSpec) -> Path:
    return Path(tempfile.gettempdir()) if spec.ephemeral else home()


def _free_bytes(place: Path) -> int | None:
    while not exists(place) and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


def _little_disk(spec: LaunchSpec) -> list[str]:
    free = _free_bytes(_place(spec))
    if free is None or free >= LOW_BYTES:
        return []
    return [f"only {free >> 20} MiB are free on the disk of {_place(spec)}: long logs may fill it"]


def _warnings(spec: LaunchSpec) -> list[str]:
    found = [*shared_gpus(spec), *_little_disk(spec)]
    try:
        shm = shutil.disk_usage("/dev/shm")
    except OSError:
        return found
    if shm.free >= min(_SHM_MINIMUM_BYTES, spec.nproc * (_SHM_MINIMUM_BYTES >> 2)):
        return found
    return [
        *found,
        f"/dev/shm has {shm.free >> 20} MiB free: data-loader workers pass batches through it and "
        "may die with a bus error; in a container, set --shm-size",
    ]


def _check_is_file(path: Path, shown: str) -> None:
    if is_dir(path):
        raise LaunchError(f"{shown} is a directory, not a Python script")
    if not exists(path):
        raise LaunchError(f"there is no script {shown}")
    if not os.access(path, os.R_OK):
        raise LaunchError(f"{shown} cannot be read: permission denied")


def _check_syntax(path: Path, shown: str, found: Interpreter) -> None:
    """Compile the script with the Python that will run it."""
    if found.version.split(".")[:2] == [str(part) for part in sys.version_info[:2]]:
        fault = _compile_here(path)
    else:
        fault = _ask(found, _COMPILE, str(path))
    if fault:
        line, _, message = fault.partition("\t")
        place = f"{shown}, line {line}" if line != "0" else shown
        raise LaunchError(f"{place}: syntax error: {message}", SCRIPT_STATUS)


def _compile_here(path: Path) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{error.lineno or 0}\t{error.msg}"
    except ValueError as error:
        return f"0\t{error}"
    except (OSError, RecursionError, MemoryError):
        return ""  # Python itself will say what is the matter.
    return ""


def _check_module(name: str, cwd: Path, found: Interpreter) -> None:
    answer = _ask(found, _FIND_MODULE, name, cwd=cwd)
    if answer == "missing":
        raise LaunchError(f"{found.path} finds no module {name}, in {cwd} or on its path")
    if answer == "package":
        raise LaunchError(f"{name} is a package without __main__.py: name a module in it")


def _ask(found: Interpreter, code: str, argument: str, cwd: Path | None = None) -> str:
    """Run a few lines in an interpreter; an empty answer when that does not work."""
    try:
        answer = subprocess.run(
            [found.path, "-c", code, argument],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CHECK_TIMEOUT_S,
            cwd=cwd,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
