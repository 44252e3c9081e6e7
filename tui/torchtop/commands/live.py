"""The viewer's controller: the launching side behind the protocol that the viewer knows."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torchtop.app.controller import ControllerError, LeftBehind, StopMode, WorkloadEntry
from torchtop.commands.errors import UsageError
from torchtop.commands.request import command_of, wish_of, workload_spec
from torchtop.launch import boot, config, sweep
from torchtop.launch.catalog import Entry, load_catalog
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session import inspections
from torchtop.session import paths as session_paths
from torchtop.session.inspections import Inspected
from torchtop.session.paths import SessionError, SessionPaths
from torchtop.session.stacks import RankStack, take
from torchtop.session.summary import write_summary
from torchtop.session.values import child, items, number


class LiveController:
    """Starts, stops and finds real sessions.

    Args:
        defaults: the options of ``run`` that hold for what is started from the viewer.
        cwd: the directory that workloads are looked up in and started in.
        spec: how the session that the viewer opens with was launched, so that it can be started
            again as it was, also when it is a script that is not in the catalog.
    """

    def __init__(
        self,
        defaults: argparse.Namespace,
        cwd: Path,
        spec: LaunchSpec | None = None,
    ) -> None:
        # Steps and time limits and a name were for the first run, not for what follows it.
        self._defaults = argparse.Namespace(
            **{**vars(defaults), "steps": None, "duration": None, "name": None}
        )
        self._cwd = cwd
        self._spec = spec
        self._asked: dict[str, config.FileWorkload] = {}
        self.started: SessionPaths | None = None
        """The last session that was started from the viewer."""
        self.begun: list[SessionPaths] = []
        """All that were."""
        self._idle: tuple[Path, subprocess.Popen[bytes]] | None = None

    def workloads(self) -> Sequence[WorkloadEntry]:
        """See `Controller`."""
        return [
            WorkloadEntry(
                key=int(entry.key) if entry.key else None,
                name=entry.name,
                summary=entry.summary,
                source=entry.source,
                problem=None,
                defaults=partial(_defaults, entry),
            )
            for entry in load_catalog(self._cwd).entries
        ]

    def consent(self, name: str, options: Mapping[str, str]) -> str | None:
        """See `Controller`."""
        try:
            entry = load_catalog(self._cwd).find(name)
            own = entry.own
            if own is None or not config.needs_consent(own, session_paths.home()):
                return None
            command = command_of(entry, options, wish_of(self._defaults))
        except (UsageError, LaunchError, SessionError) as error:
            raise ControllerError(str(error)) from None
        self._asked[name] = own
        return command

    def agree(self, name: str) -> None:
        """See `Controller`: it holds for the command that was shown, not for a later edit of it."""
        try:
            config.give_consent(self._asked.pop(name), session_paths.home())
        except KeyError:
            raise ControllerError(f"{name}: start it again and read its command first") from None
        except (config.ConfigError, SessionError) as error:
            raise ControllerError(str(error)) from None

    def start(self, name: str, options: dict[str, str]) -> Path:
        """See `Controller`."""
        try:
            if self._spec is not None and self._is_again(self._spec, name, options):
                return self._begin(self._spec)
            entry = load_catalog(self._cwd).find(name)
            # Asked once more: its file may have been edited after the user had agreed.
            if self.consent(name, options) is not None:
                raise ControllerError(f"{name}: its command is another now; start it again")
            spec = workload_spec(entry, options, self._defaults, self._cwd)
            return self._begin(spec)
        except (UsageError, LaunchError, SessionError) as error:
            raise ControllerError(str(error)) from None

    def _begin(self, spec: LaunchSpec) -> Path:
        spec = replace(spec, ephemeral=bool(getattr(self._defaults, "ephemeral", False)))
        self._spec = spec
        self.started = start_session(spec)
        self.begun.append(self.started)
        return self.started.root

    @staticmethod
    def _is_again(spec: LaunchSpec, name: str, options: dict[str, str]) -> bool:
        """Whether this is the last launch once more, with its limits and its name."""
        given = {key: str(value) for key, value in spec.options.items()}
        return name == spec.workload and options == given

    def stop(self, session: Path, mode: StopMode) -> None:
        """See `Controller`."""
        try:
            if session.is_dir() or not sweep.stop_unseen(SessionPaths(session)):
                session_paths.request_stop(SessionPaths(session), mode, "viewer")
        except SessionError as error:
            raise ControllerError(str(error)) from None

    def wait_ended(self, session: Path, timeout_s: float) -> bool:
        """See `Controller`: the supervisor holds its lock until nothing of the tree is left."""
        until = time.monotonic() + timeout_s
        while _goes_on(SessionPaths(session)):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def stacks(self, session: Path) -> Sequence[RankStack]:
        """See `Controller`."""
        try:
            return take(SessionPaths(session), "viewer")
        except SessionError as error:
            raise ControllerError(str(error)) from None

    def inspect(self, session: Path) -> Sequence[Inspected]:
        """See `Controller`."""
        try:
            return inspections.take(SessionPaths(session), "viewer")
        except SessionError as error:
            raise ControllerError(str(error)) from None

    def left_behind(self, session: Path | None) -> Sequence[LeftBehind]:
        """See `Controller`."""
        left = sweep.all_leftovers(session.parent if session else session_paths.sessions_root())
        return _as_left([p for p in left if not session or sweep.is_of(p, SessionPaths(session))])

    def sweep(self, session: Path | None) -> Sequence[LeftBehind]:
        """See `Controller`."""
        if session is None:
            return _as_left(sweep.sweep_all(session_paths.sessions_root()))
        return _as_left(sweep.sweep(SessionPaths(session)))

    def save_summary(self, session: Path) -> Path:
        """See `Controller`."""
        try:
            write_summary(SessionPaths(session))
        except OSError as error:
            raise ControllerError(f"cannot write the summary: {error.strerror}") from None
        return SessionPaths(session).summary_text

    def idle_directory(self) -> Path:
        """See `Controller`."""
        if self._idle is None:
            try:
                self._idle = start_idle_sampler()
            except (OSError, SessionError) as error:
                raise ControllerError(f"cannot watch this machine: {error}") from None
        return self._idle[0]

    def sessions(self) -> Sequence[SessionPaths]:
        """See `Controller`."""
        return session_paths.list_sessions()

    def close(self) -> None:
        """See `Controller`."""
        if self._idle is not None:
            directory, sampler = self._idle
            sampler.terminate()
            try:
                sampler.wait(2.0)
            except subprocess.TimeoutExpired:
                sampler.kill()
            shutil.rmtree(directory, ignore_errors=True)
            self._idle = None


def _defaults(entry: Entry, meta: Mapping[str, Any]) -> Mapping[str, object]:
    """The defaults of a workload's options in a session, be its description a damaged one."""
    ranks, gpus = number(meta.get("nproc")), items(meta, "gpu_uuids")
    device = str(meta.get("device") or "cuda")
    if entry.builtin is None:
        return {option.name: option.default for option in entry.options}
    try:
        given = entry.parse({k: str(v) for k, v in child(meta, "options").items()})
    except LaunchError:  # an option that it has no more
        given = {}
    return entry.builtin.defaults(given, device, int(ranks or 1), len(gpus) or None)


def _goes_on(paths: SessionPaths) -> bool:
    """Whether a session runs, be it one whose directory was deleted."""
    if paths.root.is_dir():
        return session_paths.is_running(paths)
    return any(sweep.is_of(run, paths) for run in sweep.unseen(paths.root.parent))


def _as_left(found: Sequence[sweep.Marked]) -> list[LeftBehind]:
    return [LeftBehind(left.session, left.process.pid, left.process.name) for left in found]


def start_idle_sampler() -> tuple[Path, subprocess.Popen[bytes]]:
    """Start a sampler of this viewer's own, in a directory that is swept when it has ended.

    Raises:
        OSError: it cannot be started.
        SessionError: the state directory cannot be written.
    """
    root = session_paths.private_dir(session_paths.home() / "idle")
    for old in root.iterdir():
        if old.name.isdigit() and not Path(f"/proc/{old.name}").exists():
            shutil.rmtree(old, ignore_errors=True)
    directory = root / str(os.getpid())
    shutil.rmtree(directory, ignore_errors=True)
    node = SessionPaths(directory).node()
    node.root.mkdir(mode=0o700, parents=True)
    arguments = ["--output", str(node.devices), "--parent", str(os.getpid()), "--any-thread"]
    sampler = subprocess.Popen(
        boot.command("torchtop.devices.sampler", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=directory,
        start_new_session=True,
    )
    return directory, sampler
