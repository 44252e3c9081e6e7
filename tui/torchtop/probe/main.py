"""Running a script or a module in the real ``__main__``, as Python itself does."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
from pathlib import Path
from typing import Any, Dict, FrozenSet, List

_PRIVATE = __name__.partition(".")[0]

_FALLBACK = ("torchtop", "torchtop_workloads")


def run(
    main_globals: Dict[str, Any], words: List[str], fallback: Path, plain: FrozenSet[str]
) -> None:
    """Run ``script args`` or ``-m module args``; returns or raises as it does.

    Args:
        main_globals: the dictionary of ``__main__``.
        words: what follows `rank.py` on the command line.
        fallback: a folder with torchtop for scripts, where the interpreter has none.
        plain: the names of the modules that Python itself had loaded before ours.
    """
    _forget_rank_py()
    if words[:1] == ["-m"]:
        _prepare(str(Path.cwd()), fallback, plain)
        sys.argv = ["-m", *words[2:]]
        _fresh(main_globals)
        runpy._run_module_as_main(words[1], alter_argv=True)  # type: ignore[attr-defined]
        return
    script, sys.argv = words[0], list(words)
    if pkgutil.get_importer(script) is not None:  # a folder or an archive with a __main__
        _prepare(_typed(script), fallback, plain)
        _fresh(main_globals)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    _prepare(str(Path(script).resolve().parent), fallback, plain)
    _run_script(main_globals, script)


def _forget_rank_py() -> None:
    """Take `rank.py` out of the interpreter's own command line (Python 3.10 and later)."""
    words = getattr(sys, "orig_argv", [])
    if sys.argv[0] in words:
        words.remove(sys.argv[0])


def _prepare(folder: str, fallback: Path, plain: FrozenSet[str]) -> None:
    """The import path and the loaded modules as the script would have found them."""
    # Where Python is told to keep the script's folder off the path, it put ours there neither.
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = folder
    _give_back_names(plain)
    for name in _FALLBACK:
        spec = importlib.util.find_spec(name)
        # A mere folder of that name, such as a checkout, has no origin.
        if spec is None or spec.origin is None:
            # Last on the path, so that nothing of that environment is shadowed.
            sys.path.append(str(fallback))
            return


def _give_back_names(plain: FrozenSet[str]) -> None:
    """Unlist those of our imports that the script would have got from elsewhere.

    We have loaded modules of the standard library that Python alone would not have loaded yet. If
    the script's folder, or PYTHONPATH, has a ``json.py``, an import of that name must find it.
    """
    standard = os.path.dirname(os.__file__)  # noqa: PTH120 (as it stands on the path)
    before = sys.path[: sys.path.index(standard)] if standard in sys.path else sys.path
    for name in [n for n in sys.modules if n not in plain and "." not in n and n != _PRIVATE]:
        known = getattr(sys.modules[name], "__spec__", None)
        if known is None or known.origin in ("built-in", "frozen"):
            continue  # these come before the path
        found = importlib.machinery.PathFinder.find_spec(name, before)
        if found is not None and found.origin not in (None, known.origin):
            for loaded in [n for n in sys.modules if n == name or n.startswith(name + ".")]:
                del sys.modules[loaded]


def _fresh(main_globals: Dict[str, Any]) -> Dict[str, Any]:
    """Empty ``__main__`` but for what Python puts into it; returns what else it had."""
    before = dict(main_globals)
    main_globals.clear()
    main_globals.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=importlib.machinery.BuiltinImporter,
        __spec__=None,
        __builtins__=sys.modules["builtins"],
    )
    if "__annotations__" in before:  # not in every release
        main_globals["__annotations__"] = {}
    return before


def _typed(script: str) -> str:
    """The path as Python shows it: absolute since 3.9, but not tidied."""
    if sys.version_info < (3, 9):
        return script
    return os.path.join(os.getcwd(), script)  # noqa: PTH109, PTH118


def _run_script(main_globals: Dict[str, Any], script: str) -> None:
    """Run a file as ``python script`` does."""
    path = _typed(script)
    try:
        with io.open_code(path) as file:
            code: Any = pkgutil.read_code(file)  # a .pyc
            if code is None:
                file.seek(0)
                source = file.read()
    except OSError as error:
        text = "{}: can't open file {!r}: [Errno {}] {}"
        print(text.format(sys.executable, path, error.errno, error.strerror), file=sys.stderr)
        sys.exit(2)
    before = _fresh(main_globals)
    main_globals["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    main_globals["__file__"] = path
    if "__cached__" in before:
        main_globals["__cached__"] = None
    if code is None:
        code = compile(source, path, "exec", dont_inherit=True)
    exec(code, main_globals)
