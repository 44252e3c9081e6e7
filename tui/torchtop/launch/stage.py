"""Staging: what a rank loads, copied into the session's ``stage`` folder.

The interpreter that trains need not have torchtop: it gets the probe as a private package beside
`rank.py`, and, at the end of its path, the built-in workloads.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torchtop

_RANK = '''"""Runs the user's script with torchtop's probe; started by torchrun."""
import sys
plain = frozenset(sys.modules)
import os
here = os.path.dirname(os.path.abspath(__file__))
# Nothing in the user's folders takes the place of a standard module while ours are loaded.
sys.path.insert(0, os.path.dirname(os.__file__))
import importlib.util
import pathlib
folder = os.path.join(here, "_torchtop")
spec = importlib.util.spec_from_file_location(
    "_torchtop", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
sys.modules["_torchtop"] = importlib.util.module_from_spec(spec)
from _torchtop.probe.entry import run
del sys.path[0]
run(globals(), pathlib.Path(here), plain)
'''

_SITE = '''"""Lets torchtop's probe into the Python processes of a command, then gives way."""
import sys


def _enter():
    import os
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    # Other Pythons than those that the probe is written for only pass by.
    if sys.version_info < (3, 8) or not os.environ.get("TORCHTOP_SESSION"):
        return
    import _frozen_importlib
    import _frozen_importlib_external
    stage = os.path.dirname(here)
    folder = os.path.join(stage, "_torchtop")
    spec = _frozen_importlib_external.spec_from_file_location(
        "_torchtop", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    sys.modules["_torchtop"] = _frozen_importlib.module_from_spec(spec)
    from _torchtop.probe.visit import visit
    visit(stage)


try:
    _enter()
except Exception:
    pass
# The next one on the path takes this one's place; that there is none is said by the same error.
sys.modules.pop("sitecustomize", None)
import sitecustomize
'''

SITE = "site"
"""The folder below ``stage`` that comes first on the path of a command's Python processes."""


def stage_probe(stage: Path) -> Path:
    """Copy the probe and the built-in workloads.

    Args:
        stage: the session's ``stage`` folder, which exists.

    Returns:
        The path of `rank.py`.

    Raises:
        OSError: the copy failed.
    """
    package = Path(torchtop.__file__).parent
    private = stage / "_torchtop"
    (private / "session").mkdir(parents=True)
    (private / "__init__.py").touch()
    (private / "session" / "__init__.py").touch()
    for name in ("appender.py", "records.py", "room.py"):
        shutil.copy(package / "session" / name, private / "session")
    _copy_sources(package / "probe", private / "probe")
    fallback = stage / "fallback"
    (fallback / "torchtop").mkdir(parents=True)
    shutil.copy(package / "__init__.py", fallback / "torchtop")
    workloads = _workloads_package()
    if workloads is not None:
        _copy_sources(workloads, fallback / "torchtop_workloads")
    rank = stage / "rank.py"
    rank.write_text(_RANK, encoding="utf-8")
    (stage / SITE).mkdir()
    (stage / SITE / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    return rank


def _copy_sources(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))


def _workloads_package() -> Path | None:
    """The folder of the built-in workloads, which import torch: found without importing them."""
    from importlib.util import find_spec

    spec = find_spec("torchtop_workloads")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
