"""Command lines of the built-in workloads, made from the catalog. Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from torchtop_workloads.registry import Option, Value, Workload


def parse(workload: Workload, argv: Sequence[str]) -> dict[str, Value | None]:
    """Read a workload's command line.

    Args:
        workload: whose options.
        argv: the arguments, ``--key value``; dashes and underscores in keys are the same.

    Returns:
        Every option by name; None for those that were not given.

    Raises:
        SystemExit: with status 2 and one line on stderr when the command line is not valid, with
            status 0 after ``--help``.
    """
    return vars(parser(workload).parse_args([_dashed(word) for word in argv]))


def parser(workload: Workload) -> argparse.ArgumentParser:
    """The argument parser of a workload."""
    made = _Parser(
        prog=workload.name,
        description=f"{workload.summary}. Shows: {workload.teaches}.",
        allow_abbrev=False,
    )
    for option in workload.options:
        if option.type == "bool":
            made.add_argument(
                option.flag,
                option.flag.replace("--", "--no-", 1),
                action=_Switch,
                option=option,
            )
        else:
            made.add_argument(
                option.flag,
                type=_reader(option),
                metavar="|".join(option.choices) or option.type.upper(),
                help=_help(option),
                default=argparse.SUPPRESS,
            )
    made.set_defaults(**{option.name: None for option in workload.options})
    return made


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line: the usage of twenty options would bury it."""
        self.exit(2, f"{self.prog}: {message} (--help lists the options)\n")


class _Switch(argparse.Action):
    """A switch that reads ``--x``, ``--no-x``, ``--x on`` and ``--x off``."""

    def __init__(self, option_strings: Sequence[str], dest: str, option: Option) -> None:
        self._option = option
        super().__init__(
            option_strings,
            dest,
            nargs="?",
            metavar="on|off",
            help=_help(option),
            default=argparse.SUPPRESS,
        )

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        off = (option_string or "").startswith("--no-")
        try:
            on = self._option.parse(str(values)) if values is not None else True
        except ValueError as error:
            parser.error(str(error))
        setattr(namespace, self.dest, on is not off)


def _reader(option: Option) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _help(option: Option) -> str:
    default = option.default_text()
    return (option.help + (f" (default: {default})" if default else "")).replace("%", "%%")


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    key, equals, value = word.partition("=")
    return key.replace("_", "-") + equals + value
