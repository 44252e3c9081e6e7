"""Starting a session: the directory, the staged probe, and a supervisor that lives on its own."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchtop.launch import boot, interpreter, preflight
from torchtop.launch.interpreter import Interpreter
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.stage import stage_probe
from torchtop.launch.supervisor import LAUNCH_FILE
from torchtop.session import ephemeral
from torchtop.session.locks import is_locked
from torchtop.session.paths import (
    SessionError,
    SessionPaths,
    new_session,
    write_json,
)
from torchtop.session.records import SCHEMA

_START_TIMEOUT_S = 15.0
_POLL_S = 0.02


def start_session(spec: LaunchSpec) -> SessionPaths:
    """Start a session and return when its supervisor has taken over.

    May be called from any thread. The supervisor lives in an OS session of its own and does not
    depend on the caller in any way.

    Args:
        spec: what to run. Its interpreter and working directory are made absolute.

    Returns:
        The session's directory, with ``session.json`` in it.

    Raises:
        LaunchError: it cannot be started; nothing is left behind.
    """
    ready = preflight.check(spec)
    found = ready.interpreter
    cwd = str(Path(spec.cwd).expanduser().absolute())
    spec = dataclasses.replace(spec, python=found.path, cwd=cwd)
    try:
        paths = new_session(spec.name, ephemeral.make_root() if spec.ephemeral else None)
    except SessionError as error:
        raise LaunchError(str(error)) from None
    made = paths.root.parent if spec.ephemeral else paths.root
    try:
        stage_probe(paths.stage)
        launch = paths.stage / LAUNCH_FILE
        launch.write_text(spec.to_json(), encoding="utf-8")
        launch.chmod(0o600)
        about = {**describe(spec, paths, found), "warnings": list(ready.warnings)}
        write_json(paths.meta, about)
        _start_supervisor(paths)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise LaunchError(f"cannot prepare {paths.root}: {error.strerror or error}") from None
    except LaunchError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return paths


def describe(spec: LaunchSpec, paths: SessionPaths, found: Interpreter) -> dict[str, Any]:
    """The contents of ``session.json``."""
    now = time.time()
    return {
        "schema": SCHEMA,
        "id": paths.id,
        "name": spec.name,
        "workload": spec.workload,
        "source": spec.source,
        "argv": spec.argv,
        "options": dict(spec.options),
        "device": spec.device,
        "nproc": spec.ranks,
        "gpu_uuids": list(spec.gpu_uuids),
        "python": spec.python,
        "cwd": spec.cwd,
        "started_at": datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds"),
        "wall_s": now,
        "host": socket.gethostname(),
        "ephemeral": spec.ephemeral,
        "steps": spec.steps,
        "duration_s": spec.duration_s,
        "thresholds": dict(spec.thresholds),
        "versions": interpreter.versions(None if spec.source == "command" else found),
        **({"sweep": dict(spec.sweep)} if spec.sweep else {}),
    }


def _start_supervisor(paths: SessionPaths) -> None:
    log = paths.root / "supervisor.log"
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            boot.command("torchtop.launch.supervisor", str(paths.root)),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            cwd=paths.root,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(fd)
    until = time.monotonic() + _START_TIMEOUT_S
    node = paths.node()
    while not (is_locked(node.lock) and node.events.exists()):
        if process.poll() is not None and not node.events.exists():
            raise LaunchError(f"the supervisor ended at once: {_last_line(log)}")
        if process.returncode is not None:
            return  # A run that was over before anyone looked; its records say how it went.
        if time.monotonic() >= until:
            process.kill()
            process.wait()
            raise LaunchError(f"the supervisor did not start within {_START_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)
    # Whoever starts many sessions must not collect zombies; the thread ends with the session.
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        lines = []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
