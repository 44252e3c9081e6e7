"""What a value of ``torchtop.toml`` may be: one reader a setting of a workload.

Each reader takes what TOML gave and returns what a workload holds, or raises `ConfigError` with the
end of a line that begins with the setting's name.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from torchtop.launch.spec import LaunchError
from torchtop_workloads.registry import Option

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class ConfigError(LaunchError):
    """Something in a configuration file that the user can mend; the message is one line."""


def printable(text: str) -> str:
    """Text from outside made fit for one line of a terminal: control characters are spelled out."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error line: the nearest known word, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError('must be text in quotes, such as "train"')
    return value


def _is_word(value: object) -> bool:
    """Whether a value can stand on a command line or in the environment."""
    plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return plain and "\0" not in str(value)


def _texts(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else [None]
    if not all(_is_word(word) for word in words):
        raise ConfigError('must be a list of texts, such as ["--epochs", "3"]')
    return tuple(str(word) for word in words)


def _command(value: object) -> tuple[str, ...]:
    if not (words := _texts(value)):
        raise ConfigError('must name a program, such as ["python", "train.py"]')
    return words


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError("must be a whole number from 1")
    return value


def _gpus(value: object) -> int | str:
    try:
        return "all" if value == "all" else _count(value)
    except ConfigError:
        raise ConfigError('must be a whole number from 1, or "all"') from None


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(_is_word(word) for word in value.values()):
        raise ConfigError('must be a table of texts, such as { OMP_NUM_THREADS = "4" }')
    for key in value:
        if not key or "=" in key or "\0" in key:
            raise ConfigError(f"has {key!r}, which no variable can be called: rename it")
    return {key: str(text) for key, text in value.items()}


def _options(value: object) -> tuple[Option, ...]:
    if not isinstance(value, dict):
        raise ConfigError("must be a table of name and value, such as { lr = 0.1 }")
    return tuple(_option(name, default) for name, default in value.items())


def _option(name: str, default: object) -> Option:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"has {name!r}: an option's name has letters, digits, '_' and '-'")
    if not isinstance(default, (bool, int, float, str)):
        raise ConfigError(f"has no plain value for {name}: give text, a number, true or false")
    if isinstance(default, float) and not math.isfinite(default):
        raise ConfigError(f"has {name} = {default}: give a finite number")
    return Option(name, type(default).__name__, default, "")


READERS: dict[str, Callable[[object], Any]] = {
    "script": _text,
    "module": _text,
    "command": _command,
    "args": _texts,
    "gpus": _gpus,
    "nproc": _count,
    "env": _env,
    "cwd": _text,
    "summary": _text,
    "options": _options,
}
"""By the name of the setting."""
