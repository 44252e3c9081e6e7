"""What is to be started: one value, made by whoever asks, read by the supervisor."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

Source = Literal["builtin", "file", "script", "module", "command"]
Device = Literal["cuda", "cpu"]

USAGE_STATUS = 2
"""Exit status of a launch that was asked for wrongly."""

SCRIPT_STATUS = 1
"""Exit status where the script itself is at fault."""


class LaunchError(Exception):
    """Why a launch cannot happen, in one line that says what to do.

    Attributes:
        exit_status: what the command line exits with: 2, or 1 for an error of the script's own.
    """

    def __init__(self, message: str, exit_status: int = USAGE_STATUS) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_status = exit_status


@dataclass(frozen=True)
class LaunchSpec:
    """One start of one workload.

    Attributes:
        name: what the session is called.
        workload: the workload's name in the catalog, or the script's path.
        source: where the workload comes from.
        target: a script's path, a module's name, or the program of a command.
        args: the script's own arguments; for a built-in with its options already among them.
        options: the options as the user set them, for the record.
        device: where it trains.
        nproc: ranks on this node; of no meaning for a command, which starts its own.
        gpu_uuids: the GPUs to use, by UUID; empty leaves the choice to the environment.
        python: the interpreter of the ranks.
        cwd: the ranks' working directory.
        env: variables to add to the ranks' environment.
        steps: stop after this many steps, or None.
        duration_s: stop this long after the start, or None.
        measured_s: stop when the steps after `warmup` have taken so long, or None. A built-in
            workload is told by its arguments instead.
        warmup: steps before `measured_s` begins to count.
        shutdown_timeout_s: how long torchrun waits for its ranks between SIGTERM and SIGKILL.
        thresholds: limits of the diagnosis that differ from the table's, by name.
        direct: whether Python starts the script, once, because there is no torchrun for it.
        soft_timeout_s: how long a soft stop waits for the ranks to end by themselves.
        ephemeral: keep the session in a temporary directory, for whoever shows it to remove.
        sweep: of which sweep's cell this is a run; empty for any other.
    """

    name: str
    workload: str
    source: Source
    target: str
    args: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    device: Device = "cpu"
    nproc: int = 1
    gpu_uuids: tuple[str, ...] = ()
    python: str = sys.executable
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None
    duration_s: float | None = None
    measured_s: float | None = None
    warmup: int = 0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    shutdown_timeout_s: float = 8.0
    soft_timeout_s: float = 20.0
    direct: bool = False
    ephemeral: bool = False
    sweep: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_module(self) -> bool:
        """Whether the target is run as a module (``-m``).

        A workload from a file may name either: what looks like no path is a module.
        """
        if self.source == "file":
            return "/" not in self.target and not self.target.endswith(".py")
        return self.source in ("builtin", "module")

    @property
    def by_torchrun(self) -> bool:
        """Whether torchtop starts the ranks, by torchrun."""
        return not self.direct and self.source != "command"

    @property
    def ranks(self) -> int | None:
        """How many ranks this node will have; None where a command decides that."""
        return None if self.source == "command" else self.nproc

    @property
    def argv(self) -> list[str]:
        """The script and its arguments, as a user would type them."""
        return [*(("-m",) if self.is_module else ()), self.target, *self.args]

    def to_json(self) -> str:
        """The spec as a JSON object."""
        return json.dumps(asdict(self), indent=1, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LaunchSpec:
        """The spec that `to_json` wrote; unknown fields are ignored.

        Raises:
            LaunchError: the text is not one.
        """
        try:
            value = json.loads(text)
            known = {f.name for f in fields(cls)}
            kept = {name: item for name, item in value.items() if name in known}
            for name in ("args", "gpu_uuids"):
                kept[name] = tuple(kept.get(name, ()))
            return cls(**kept)
        except (ValueError, TypeError, AttributeError) as error:
            raise LaunchError(f"the launch file cannot be read: {error}") from None

    @classmethod
    def load(cls, path: Path) -> LaunchSpec:
        """The spec in a file.

        Raises:
            LaunchError: there is none.
        """
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise LaunchError(f"cannot read {path}: {error.strerror}") from None
