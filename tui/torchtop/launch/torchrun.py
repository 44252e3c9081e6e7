"""The command line of torchrun and the environment of the ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchtop.launch.interpreter import Interpreter
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.stage import SITE
from torchtop.session.paths import SessionPaths

_MAIN = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "from torch.distributed.run import main; main()"
)

_DROPPED = ("TORCHTOP_SESSION", "TORCHTOP_SESSION_DIR", "TORCHTOP_RANK", "TORCHTOP_LAUNCHER")
"""The marks of a session that this one was started from."""


def launcher(interpreter: Interpreter) -> list[str]:
    """How to start torchrun with exactly this interpreter.

    The console script is read, not trusted: it is given to the interpreter that was asked for, so
    that the shebang of another environment has no say. ``python -m`` is not used: it would put the
    current directory first on the import path.
    """
    script = Path(interpreter.path).parent / "torchrun"
    try:
        is_torchrun = b"torch.distributed.run" in script.read_bytes()[:4096]
    except OSError:
        is_torchrun = False
    return [interpreter.path, *([str(script)] if is_torchrun else ["-c", _MAIN])]


def command(spec: LaunchSpec, paths: SessionPaths, interpreter: Interpreter) -> list[str]:
    """The whole command line of the agent.

    The address ``localhost:0`` lets the store choose its port: two runs never collide. After
    ``--`` nothing is taken for an option of torchrun's; without it, a script's ``--n`` would be
    refused as short for several of them.
    """
    if spec.source == "command":
        return [spec.target, *spec.args]
    if spec.direct:
        return [interpreter.path, "-u", str(paths.stage / "rank.py"), *spec.argv]
    flags = [
        "--nnodes=1",
        f"--nproc-per-node={spec.nproc}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--rdzv-id={paths.id}",
        f"--log-dir={paths.logs}",
        "--redirects=3",
        "--max-restarts=0",
    ]
    if interpreter.torchrun_knows("--shutdown-timeout"):
        flags.append(f"--shutdown-timeout={max(1, round(spec.shutdown_timeout_s))}")
    if not interpreter.torchrun_knows("--nproc-per-node"):
        flags = [_with_underscores(flag) for flag in flags]
    return [*launcher(interpreter), *flags, "--", str(paths.stage / "rank.py"), *spec.argv]


def _with_underscores(flag: str) -> str:
    """A flag as PyTorch 1 spells it: ``--nproc_per_node=2``."""
    name, equals, value = flag.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def environment(
    spec: LaunchSpec, paths: SessionPaths, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the agent, and so of the ranks.

    Args:
        spec: what is started.
        paths: its session.
        inherited: the user's environment.
    """
    if spec.source == "command":
        env = _of_a_command(spec, paths, inherited)
    else:
        env = _of_torchrun(spec, inherited)
    env["TORCHTOP_SESSION"] = paths.id
    env["TORCHTOP_SESSION_DIR"] = str(paths.root)
    env["TORCHTOP_SUPERVISOR_PID"] = str(os.getpid())
    env["TORCHTOP_DEVICE"] = spec.device
    if spec.direct:
        env["TORCHTOP_LAUNCHER"] = "none"
    return env


def _of_torchrun(spec: LaunchSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    env = {
        name: value
        for name, value in inherited.items()
        # PET_* are torchrun's defaults for its flags: the command line above is meant to be whole.
        if not name.startswith("PET_") and name not in (*_DROPPED, "PYTHON_EXEC")
    }
    env.update(spec.env)
    if "PYTHONPATH" in env:
        parts = [part for part in env["PYTHONPATH"].split(os.pathsep) if part]
        env["PYTHONPATH"] = os.pathsep.join(parts)
        if not parts:
            del env["PYTHONPATH"]
    env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if spec.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    elif spec.gpu_uuids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(spec.gpu_uuids)
    if spec.source == "builtin" and spec.device == "cpu" and spec.nproc > 1:
        cores = len(os.sched_getaffinity(0))
        env.setdefault("OMP_NUM_THREADS", str(max(1, cores // spec.nproc)))
    return env


def _of_a_command(
    spec: LaunchSpec, paths: SessionPaths, inherited: Mapping[str, str]
) -> dict[str, str]:
    """What the user's own launcher finds: all as it was, and a first folder on PYTHONPATH."""
    env = {name: value for name, value in inherited.items() if name not in _DROPPED}
    env.update(spec.env)
    outer = inherited.get("TORCHTOP_SESSION_DIR")
    rest = env.get("PYTHONPATH", "").split(os.pathsep) if env.get("PYTHONPATH") else []
    rest = [part for part in rest if not outer or part != str(Path(outer) / "stage" / SITE)]
    env["PYTHONPATH"] = os.pathsep.join([str(paths.stage / SITE), *rest])
    # Its output goes to a file, which Python would fill 8 KiB at a time.
    env.setdefault("PYTHONUNBUFFERED", "1")
    # torchrun's own limit between SIGTERM and SIGKILL where it was given none; else 30 s.
    env.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(max(1, round(spec.shutdown_timeout_s))))
    if spec.gpu_uuids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(spec.gpu_uuids)
    return env
