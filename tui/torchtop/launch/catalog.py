"""The catalog: the built-in workloads and then the user's own, each with the key that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from torchtop.launch.config import Config, FileWorkload, load_config
from torchtop.launch.config_values import printable, suggestion
from torchtop.launch.spec import LaunchError
from torchtop.session.records import SCHEMA
from torchtop_workloads.registry import WORKLOADS, Option, Value, Workload

_KEYS = "123456789"


class CatalogError(LaunchError):
    """A workload or an option that does not exist, or a value that does not fit; one line."""


@dataclass(frozen=True)
class Entry:
    """One workload of the catalog.

    Attributes:
        key: the key that starts it in the viewer; None where there is none.
        name: what a person types.
        summary: what it trains, one line.
        source: ``builtin``, or ``file`` for one from a ``torchtop.toml``.
        options: what ``-o`` may set.
        builtin: the built-in behind it, or None.
        own: the user's workload behind it, or None.
    """

    key: str | None
    name: str
    summary: str
    source: Literal["builtin", "file"]
    options: tuple[Option, ...]
    builtin: Workload | None = None
    own: FileWorkload | None = None

    @property
    def target(self) -> str:
        """What is run: a module's import path, a script's absolute path, or a program's name."""
        if self.builtin:
            return self.builtin.module
        if self.own and self.own.command:
            return self.own.command[0]
        return (self.own.module if self.own else None) or str(self.own and self.own.script)

    @property
    def is_command(self) -> bool:
        """Whether it is a command of the user's, which starts its ranks itself."""
        return self.own is not None and bool(self.own.command)

    def validate(self, options: Mapping[str, str]) -> dict[str, str]:
        """Check options as they were typed.

        Args:
            options: values by name, dashes and underscores being the same.

        Returns:
            The same by the options' own names, values in one spelling: ``on``, ``off``, ``1000``.

        Raises:
            CatalogError: such as ``-o batch=abc: batch must be a whole number, not 'abc'``.
        """
        return {name: _spelled(value) for name, value in self.parse(options).items()}

    def arguments(self, options: Mapping[str, str]) -> list[str]:
        """The arguments that start it with these options; the others keep their defaults.

        Raises:
            CatalogError: as `validate`.
        """
        values = self.parse(options)
        if self.own:
            return [*self.own.command[1:], *self.own.arguments(values)]
        by_name = {option.name: option for option in self.options}
        return [f"{by_name[name].flag}={_spelled(value)}" for name, value in values.items()]

    def as_json(self) -> dict[str, Any]:
        """The entry of ``torchtop workloads --json``."""
        return {
            "key": self.key,
            "name": self.name,
            "summary": self.summary,
            "teaches": self.builtin.teaches if self.builtin else None,
            "source": self.source,
            "file": str(self.own.file) if self.own else None,
            "command": self.own.shown_command() if self.own else None,
            "target": self.target,
            "options": [asdict(option) for option in self.options],
        }

    def parse(self, options: Mapping[str, str]) -> dict[str, Value]:
        """The values of options as they were typed, by the options' own names.

        Raises:
            CatalogError: as `validate`.
        """
        values: dict[str, Value] = {}
        for name, text in options.items():
            option = self.option(name)
            try:
                values[option.name] = option.parse(text)
            except ValueError as error:
                raise CatalogError(printable(f"-o {name}={text}: {error}")) from None
        return values

    def option(self, name: str) -> Option:
        """The option of that name, dashes and underscores being the same.

        Raises:
            CatalogError: there is none; the line names the nearest one.
        """
        for option in self.options:
            if name in (option.name, option.name.replace("_", "-"), option.name.replace("-", "_")):
                return option
        if self.own and not self.options:
            table = f"[workloads.{self.name}.options] in {self.own.file}"
            hint = f"{self.name} has no options: name them under {table}"
        else:
            known = [option.name for option in self.options]
            hint = f"{self.name} has no such option: {suggestion(name, known)}"
        raise CatalogError(printable(f"-o {name}: {hint}"))


@dataclass(frozen=True)
class Catalog:
    """All workloads, in the order of their keys.

    Attributes:
        entries: the built-in ones first.
        config: thresholds and keys of the configuration files.
    """

    entries: tuple[Entry, ...]
    config: Config = field(default_factory=Config)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong in the configuration files, one line each."""
        return self.config.problems

    def find(self, name: str) -> Entry:
        """The workload of that name.

        Raises:
            CatalogError: there is none; the line names the nearest one, or all.
        """
        for entry in self.entries:
            if entry.name == name:
                return entry
        known = [entry.name for entry in self.entries]
        raise CatalogError(
            printable(f"there is no workload {name}: {suggestion(name.replace('_', '-'), known)}")
        )

    def by_key(self, key: str) -> Entry | None:
        """The workload that a key starts, if there is one."""
        return next((entry for entry in self.entries if entry.key == key), None)

    def as_json(self) -> dict[str, Any]:
        """What ``torchtop workloads --json`` prints."""
        return {
            "schema": SCHEMA,
            "workloads": [entry.as_json() for entry in self.entries],
            "problems": list(self.problems),
        }


def load_catalog(cwd: Path) -> Catalog:
    """The built-in workloads and those of the configuration files. Never raises.

    Args:
        cwd: the directory whose ``torchtop.toml`` counts.
    """
    config = load_config(cwd, {workload.name for workload in WORKLOADS})
    keys = iter(_KEYS)
    built_in = [
        Entry(next(keys, None) if w.keyed else None, w.name, w.summary, "builtin", w.options, w)
        for w in WORKLOADS
    ]
    own = [
        Entry(next(keys, None), w.name, printable(w.summary), "file", w.options, own=w)
        for w in config.workloads
    ]
    return Catalog((*built_in, *own), config)


def _spelled(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
