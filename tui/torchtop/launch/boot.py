"""Starts a module of torchtop in a process of its own, untouched by the user's directory.

Run by path and isolated (``python -I .../boot.py PATHS MODULE ARGS...``), so that neither a
``json.py`` in the current directory nor an empty element in PYTHONPATH can take the place of a
standard module. The package is loaded from where this file lies, be it an editable install, a
wheel or a folder on PYTHONPATH; PATHS (the parent's import path, joined by ``os.pathsep``) comes
last and only serves to find third-party packages.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from pathlib import Path


def command(module: str, *args: str) -> list[str]:
    """The command line that runs `module` of torchtop with `args` in this interpreter."""
    paths = os.pathsep.join(p for p in sys.path if p and os.pathsep not in p)
    return [sys.executable, "-I", str(Path(__file__).resolve()), paths, module, *args]


def main() -> None:
    """Load the package that this file belongs to, and run one of its modules as ``__main__``."""
    paths, module, *args = sys.argv[1:]
    sys.path.extend(p for p in paths.split(os.pathsep) if p and p not in sys.path)
    init = Path(__file__).resolve().parents[1] / "__init__.py"
    spec = importlib.util.spec_from_file_location("torchtop", init)
    if spec is None or spec.loader is None:
        raise SystemExit(f"torchtop: {init} cannot be loaded")
    package = importlib.util.module_from_spec(spec)
    sys.modules["torchtop"] = package
    spec.loader.exec_module(package)
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
