"""``torchtop.toml``: a user's own workloads, thresholds and keys, and whether to trust them.

Two files are read: ``torchtop.toml`` in the current directory, which may have come with somebody
else's repository, and the one in the user's configuration directory, which is trusted. Neither is
read if another user owns it or can write it. A workload from the current directory never takes the
name of a built-in one, and its first start needs the user's consent to the full command
(`needs_consent`, `give_consent`).

    [workloads.my-model]
    script = "train.py"               # or module = "pkg.train", or command = ["bash", "train.sh"];
                                      # relative to this file
    args = ["--epochs", "3"]
    gpus = 2                          # or "all"; nproc = 2 for ranks without GPUs
    cwd = "."
    summary = "our model on our data"
    env = { OMP_NUM_THREADS = "4" }
    options = { lr = 0.1 }            # `-o lr=0.2` becomes `--lr=0.2` after args

    [thresholds]                      # see diagnose
    [keys]                            # binding = "key"; read from the user's own file only
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torchtop.launch.config_values import READERS, ConfigError, printable, suggestion
from torchtop.session import paths
from torchtop_workloads.registry import Option, Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "FILE_NAME",
    "Config",
    "ConfigError",
    "FileWorkload",
    "give_consent",
    "load_config",
    "needs_consent",
]

FILE_NAME = "torchtop.toml"
_LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_TABLES = ("workloads", "thresholds", "keys")
_TARGETS = ("script", "module", "command")


@dataclass(frozen=True)
class FileWorkload:
    """A workload of the user's own.

    Attributes:
        name: what a person types.
        file: the file that names it, absolute.
        trusted: whether the file is the user's own configuration.
        summary: one line.
        script: the script's absolute path; exactly one of script, module and command is set.
        module: an import path, for ``torchrun -m``.
        command: a whole command line, which starts its ranks itself.
        args: arguments before the options.
        gpus: how many GPUs, or ``all``; None leaves it to the command line.
        nproc: how many ranks where there are no GPUs; None leaves it to the command line.
        env: variables added to the environment.
        cwd: the directory to start in, absolute; None is the current one.
        options: what ``-o`` may set.
    """

    name: str
    file: Path
    trusted: bool
    summary: str = ""
    script: Path | None = None
    module: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    gpus: int | Literal["all"] | None = None
    nproc: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    options: tuple[Option, ...] = ()

    def arguments(self, values: Mapping[str, Value]) -> list[str]:
        """The arguments of the script: args, then each option as ``--name=value``.

        Options keep the spelling of the file. A switch that is on is ``--name``; off, it is left
        out.

        Args:
            values: parsed options by name; the others have the values of the file.
        """
        words = list(self.args)
        for option in self.options:
            value = values.get(option.name, option.default)
            if value is True:
                words.append(f"--{option.name}")
            elif value is not False and value is not None:
                words.append(f"--{option.name}={value}")
        return words

    def shown_command(self) -> str:
        """The full command as the file has it; see `command_with`."""
        return self.command_with({}, self.gpus or self.nproc)

    def command_with(self, values: Mapping[str, Value], ranks: int | Literal["all"] | None) -> str:
        """The full command, for a person to judge before the first start: one line, no escapes.

        Args:
            values: parsed options by name; the others have the values of the file.
            ranks: how many, or one for each GPU; None where nobody says.
        """
        if self.command:
            words = [*self.command, *self.arguments(values)]
        else:
            count = "gpu" if ranks == "all" else ranks
            told = [f"--nproc-per-node={count}"] if count else []
            target = ["-m", self.module] if self.module else [str(self.script)]
            words = ["torchrun", *told, *target, *self.arguments(values)]
        variables = [f"{key}={shlex.quote(value)}" for key, value in self.env.items()]
        place = f"cd {shlex.quote(str(self.cwd))} && " if self.cwd else ""
        return printable(place + " ".join([*variables, shlex.join(words)]))


@dataclass(frozen=True)
class Config:
    """What the configuration files say.

    Attributes:
        workloads: the user's own file's first, then those of the current directory.
        thresholds: the table as written, the current directory's over the user's; judged by
            diagnose.
        keys: binding to key, from the user's own file.
        problems: what is wrong in the files, one line each, fit for a terminal.
    """

    workloads: tuple[FileWorkload, ...] = ()
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def load_config(cwd: Path, reserved: Collection[str] = ()) -> Config:
    """Read both configuration files; what is wrong in them becomes a problem and is left out.

    Args:
        cwd: the current directory.
        reserved: names that no file may take.
    """
    workloads: dict[str, FileWorkload] = {}
    thresholds: dict[str, Any] = {}
    keys: dict[str, str] = {}
    problems: list[str] = []
    for path, trusted in _files(cwd):
        try:
            document = _Document(path, _read(path))
        except ConfigError as error:
            problems.append(str(error))
            continue
        for name, workload in document.workloads(trusted):
            if name in reserved:
                problems.append(f"{path}: {name} is a built-in workload: give yours another name")
            elif name in workloads:
                problems.append(
                    f"{path}: {name} is in {workloads[name].file} already: rename one of them"
                )
            else:
                workloads[name] = workload
        thresholds.update(document.table("thresholds"))
        keys.update(document.keys(trusted))
        problems += document.problems
    lines = tuple(printable(problem) for problem in problems)
    return Config(tuple(workloads.values()), thresholds, keys, lines)


def needs_consent(workload: FileWorkload, home: Path) -> bool:
    """Whether the user has to agree before this workload starts.

    Args:
        workload: as it is in its file now; consent to an earlier form of it does not count.
        home: torchtop's state directory.
    """
    return not workload.trusted and _fingerprint(workload) not in _consents(home)


def give_consent(workload: FileWorkload, home: Path) -> None:
    """Remember that the user agreed to start this workload as it is in its file now.

    Raises:
        ConfigError: it cannot be written down.
    """
    entry = {"file": str(workload.file), "workload": workload.name}
    consents = {**_consents(home), _fingerprint(workload): entry}
    try:
        paths.write_json(paths.private_dir(home) / "trusted.json", {"sha256": consents})
    except paths.SessionError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"cannot write trusted.json in {home}: {error.strerror}") from None


def _consents(home: Path) -> dict[str, Any]:
    file = home / "trusted.json"
    try:
        if file.stat().st_uid != os.geteuid():
            return {}
    except OSError:
        return {}
    consents = (paths.read_json(file) or {}).get("sha256")
    return consents if isinstance(consents, dict) else {}


def _fingerprint(workload: FileWorkload) -> str:
    """SHA-256 over the file's path and all that decides what is run."""
    resolved = dataclasses.asdict(workload)
    text = json.dumps(resolved, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _files(cwd: Path) -> Iterator[tuple[Path, bool]]:
    """The files to read, and whether they are trusted. Relative paths begin where a file lies."""
    own = Path(os.path.realpath(paths.config_home() / FILE_NAME))
    here = Path(os.path.realpath(cwd / FILE_NAME))
    yield own, True
    if here != own:
        yield here, False


def _read(path: Path) -> dict[str, Any]:
    """One file's tables, empty when there is no such file.

    Raises:
        ConfigError: it cannot be read, is not to be trusted, or is not TOML.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): see its mode") from None
    try:
        _refuse_foreign(path, os.fstat(fd))  # before fdopen, which refuses a directory by itself
    except ConfigError:
        os.close(fd)
        raise
    with os.fdopen(fd, "rb") as file:
        content = file.read(_LIMIT_BYTES + 1)
    if len(content) > _LIMIT_BYTES:
        raise ConfigError(f"{path}: larger than 1 MiB, which no configuration is: not read")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}: line {line}: not UTF-8: save the file as UTF-8") from None
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise ConfigError(_toml_line(path, str(error), content)) from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply: not read") from None


def _toml_line(path: Path, message: str, content: bytes) -> str:
    where = re.search(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)", message)
    number = where and where[1]
    line = number or str(max(1, len(content.splitlines())))
    reason = message[: where.start()] if where else message
    return f"{path}: line {line}: not valid TOML: {reason}: mend that line"


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    """Refuse a file that somebody else could have written: it names commands to run.

    Raises:
        ConfigError: with what to do about it.
    """
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: not a regular file: not read")
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"{path}: belongs to another user (uid {status.st_uid}), so it is not read: "
            f"if you trust it, copy it to {paths.config_home() / FILE_NAME}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path}: others can write it, so it is not read: chmod go-w {path}")


class _Document:
    """One file's tables, and what is wrong in them."""

    def __init__(self, path: Path, tables: dict[str, Any]) -> None:
        self.path = path
        self.problems: list[str] = []
        self._tables = tables
        for key in tables:
            if key not in _TABLES:
                self._complain(f"there is no table [{key}]: {suggestion(key, _TABLES)}")

    def table(self, name: str) -> dict[str, Any]:
        """A table of the top level; empty when it is absent or something else."""
        value = self._tables.get(name, {})
        if isinstance(value, dict):
            return value
        self._complain(f"{name} must be a table: write [{name}] on a line of its own")
        return {}

    def keys(self, trusted: bool) -> dict[str, str]:
        """The table of keys. A file that came with a repository must not move the keys."""
        table = self.table("keys")
        if table and not trusted:
            where = paths.config_home() / FILE_NAME
            self._complain(f"[keys] counts only in your own configuration: move it to {where}")
            return {}
        for key, value in table.items():
            if not isinstance(value, str) or not value:
                self._complain(f'keys.{key} must be a key in quotes, such as "f5"')
        return {key: value for key, value in table.items() if isinstance(value, str) and value}

    def workloads(self, trusted: bool) -> Iterator[tuple[str, FileWorkload]]:
        """The workloads that have no mistake."""
        for name, table in self.table("workloads").items():
            try:
                yield name, self._workload(name, table, trusted)
            except ConfigError as error:
                self._complain(str(error))

    def _workload(self, name: str, table: object, trusted: bool) -> FileWorkload:
        where = f"workloads.{name}"
        if not _NAME.fullmatch(name) or name.endswith(".py"):
            raise ConfigError(
                f"{where}: a name has at most 40 letters, digits, '.', '_', '-', and no .py"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{where} must be a table: write [{where}] on a line of its own")
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in READERS:
                raise ConfigError(f"{where} has no setting {key!r}: {suggestion(key, READERS)}")
            try:
                values[key] = READERS[key](value)
            except ConfigError as error:
                raise ConfigError(f"{where}.{key} {error}") from None
        if sum(key in values for key in _TARGETS) != 1:
            raise ConfigError(f"{where} needs one of script, module and command")
        if "command" in values and "nproc" in values:
            raise ConfigError(f"{where}.nproc: a command starts its ranks itself: leave it out")
        for key in ("script", "cwd"):
            if key in values:
                values[key] = self.path.parent / Path(values[key]).expanduser()
        return FileWorkload(name=name, file=self.path, trusted=trusted, **values)

    def _complain(self, text: str) -> None:
        self.problems.append(f"{self.path}: {text}")
