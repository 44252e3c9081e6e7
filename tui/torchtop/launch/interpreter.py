"""What an interpreter has, found out without importing torch."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torchtop.launch.spec import LaunchError

_ASK_TIMEOUT_S = 20.0
"""An interpreter on a cold network file system takes seconds to start."""

_QUESTION = """
import sys
sys.path[:] = [p for p in sys.path if p]
import importlib.util, json, platform
torch = importlib.util.find_spec("torch")
json.dump([platform.python_version(), torch and torch.origin], sys.stdout)
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter and its PyTorch.

    Attributes:
        path: the executable; a virtual environment's own link, not what it points to.
        version: Python's version.
        torch_root: the folder of the torch package, or None where it is not installed.
    """

    path: str
    version: str
    torch_root: Path | None

    @property
    def is_own(self) -> bool:
        """Whether it is the one that runs this."""
        return self.path == _own_path()

    @property
    def torch_version(self) -> str | None:
        """PyTorch's version, such as ``2.11.0+cu128``."""
        return self._torch_fact("__version__")

    @property
    def cuda_version(self) -> str | None:
        """The CUDA version that PyTorch was built for; None for a CPU build."""
        return self._torch_fact("cuda")

    def _torch_fact(self, name: str) -> str | None:
        """A constant of ``torch/version.py``, which holds nothing but such constants."""
        if self.torch_root is None:
            return None
        try:
            text = (self.torch_root / "version.py").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        found = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        return found.group(1) if found else None

    @property
    def has_torchrun(self) -> bool:
        """Whether its PyTorch can start ranks: 1.9 and later, built with ``torch.distributed``."""
        root = self.torch_root
        return root is not None and (root / "distributed" / "run.py").is_file()

    def torchrun_knows(self, flag: str) -> bool:
        """Whether this PyTorch's torchrun has a flag (``--help`` would take two seconds)."""
        if self.torch_root is None:
            return False
        try:
            source = (self.torch_root / "distributed" / "run.py").read_text(encoding="utf-8")
        except (OSError, ValueError):
            return False
        return f'"{flag}"' in source


def inspect(python: str) -> Interpreter:
    """Look at an interpreter, in a process of its own unless it is this one.

    Raises:
        LaunchError: it cannot be run.
    """
    found = shutil.which(python)
    if found is None:
        raise LaunchError(f"there is no Python interpreter {python}; choose one with --python")
    path = str(Path(found).absolute())
    if path == _own_path():
        spec = importlib.util.find_spec("torch")
        root = Path(spec.origin).parent if spec and spec.origin else None
        return Interpreter(path, platform.python_version(), root)
    return _ask(path)


def _own_path() -> str:
    # Not resolved: a virtual environment is known by where its link lies, not by what it links to.
    return str(Path(sys.executable).absolute())


@lru_cache(maxsize=32)
def _ask(path: str) -> Interpreter:
    try:
        answer = subprocess.run(
            [path, "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
        )
        version, origin = json.loads(answer.stdout)
        root = Path(origin).parent if origin else None
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        raise LaunchError(f"{path} does not work as a Python interpreter") from None
    return Interpreter(path, str(version), root)


def versions(interpreter: Interpreter | None) -> dict[str, str | None]:
    """The versions of ``session.json``; None where the ranks' interpreter is not known."""
    try:
        own = importlib.metadata.version("torchtop")
    except importlib.metadata.PackageNotFoundError:
        from torchtop import __version__ as own
    return {
        "torchtop": own,
        "python": interpreter.version if interpreter else None,
        "torch": interpreter.torch_version if interpreter else None,
        "cuda": interpreter.cuda_version if interpreter else None,
        "driver": _driver_version(),
    }


def _driver_version() -> str | None:
    try:
        text = Path("/sys/module/nvidia/version").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.strip() or None
