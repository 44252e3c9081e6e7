"""A command's Python processes do not notice that torchtop looks in on them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from anyscript.visited import RANK, Visited, run

LOOK = """
import sys
told = {"path": sys.path, "argv": sys.argv, "flags": str(sys.flags), "modules": list(sys.modules)}
told["site"] = getattr(sys.modules.get("sitecustomize"), "__file__", None)
told["finders"] = [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path]
import json
print(json.dumps(told))
"""


def look(output: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))


def test_a_script_sees_what_it_sees_without(session: Visited, folder: Path) -> None:
    write(folder, script=LOOK)
    for words in (["script.py", "-x"], ["-m", "script", "-x"], ["-u", "-W", "error", "script.py"]):
        plain, visited = (look(made(words, folder).out) for made in (run, session.run))

        added = set(visited.pop("modules")) - set(plain.pop("modules"))
        assert {name.partition(".")[0] for name in added} <= {"_torchtop", "__future__"}
        first, *finders, last = visited.pop("finders")
        assert (first, last) == ("_TorchFinder", "_Fallback")
        assert finders == plain.pop("finders")
        assert visited == plain
    assert session.files == []


def test_a_sitecustomize_that_is_there_runs_once_and_stays(session: Visited, folder: Path) -> None:
    write(folder / "lib", sitecustomize="VALUE = 7\nprint('theirs')")
    write(folder, script=LOOK)

    for made in (run, session.run):
        ended = made(["script.py"], folder, PYTHONPATH=str(folder / "lib"))
        assert ended.out.splitlines()[0] == "theirs"
        assert ended.out.count("theirs\n") == 1
        assert look(ended.out)["site"] == str(folder / "lib" / "sitecustomize.py")


@pytest.mark.parametrize(
    "theirs", ["raise ValueError('bad')", "import nosuchmodule", "x = (", "raise ImportError"]
)
def test_a_sitecustomize_that_fails_fails_as_ever(
    session: Visited, folder: Path, theirs: str
) -> None:
    write(folder / "lib", sitecustomize=theirs)
    write(folder, script="print('ran')")
    path = str(folder / "lib")

    plain, visited = (made(["script.py"], folder, PYTHONPATH=path) for made in (run, session.run))

    assert visited == plain
    assert visited.out == "ran\n"


def test_a_usercustomize_is_left_alone(session: Visited, folder: Path) -> None:
    python = getattr(sys, "_base_executable", sys.executable)
    env = {"PYTHONUSERBASE": str(folder / "user")}
    where = run(["-m", "site", "--user-site"], folder, python, **env).out.strip()
    write(Path(where), usercustomize="print('user')")
    write(folder, script="print('ran')")

    plain, visited = (made(["script.py"], folder, python, **env) for made in (run, session.run))

    if "user" not in plain.out:
        pytest.skip("this Python has no user site")
    assert visited == plain


@pytest.mark.parametrize("flags", [["-S"], ["-I"], ["-E"]])
def test_an_isolated_python_is_not_entered(
    session: Visited, folder: Path, flags: list[str]
) -> None:
    write(folder, script="import sys\nprint([m for m in sys.modules if 'torchtop' in m])")

    ended = session.run([*flags, "script.py"], folder, **RANK)

    assert (ended.out, ended.err) == ("[]\n", "")
    assert session.files == []


def test_an_empty_element_of_pythonpath_keeps_its_meaning(session: Visited, folder: Path) -> None:
    write(folder / "lib", script=LOOK)
    words = ["lib/script.py"]

    plain, visited = (
        look(made(words, folder, PYTHONPATH=":/nowhere").out) for made in (run, session.run)
    )

    assert visited["path"] == plain["path"]


def test_a_virtual_environment_is_entered_and_stays_itself(session: Visited, folder: Path) -> None:
    venv.EnvBuilder(symlinks=True).create(folder / "env")
    python = str(folder / "env" / "bin" / "python")
    write(folder, script=LOOK)

    plain, visited = (look(made(["script.py"], folder, python).out) for made in (run, session.run))

    assert "_TorchFinder" in visited["finders"]
    assert visited["path"] == plain["path"]


def test_a_module_named_as_a_standard_one_is_found_as_ever(session: Visited, folder: Path) -> None:
    names = ("json", "queue", "pathlib", "contextlib", "socket")
    script = "".join(f"import {name}; print({name}.__file__)\n" for name in names)
    write(folder, script=script, **dict.fromkeys(names, "OURS = 1"))

    plain, visited = (made(["script.py"], folder, **RANK) for made in (run, session.run))

    assert visited == plain
    assert visited.out.count(str(folder)) == len(names)


def test_scripts_find_torchtop_where_there_is_none(session: Visited, folder: Path) -> None:
    write(folder, script="import torchtop, sys\ntorchtop.log(loss=1)\nprint(torchtop.__file__)")
    ended = session.run(["script.py"], folder)
    assert ended.out == f"{session.stage.root}/stage/fallback/torchtop/__init__.py\n"

    write(folder, torchtop="MINE = 1\ndef log(**_): pass")
    assert session.run(["script.py"], folder).out == f"{folder}/torchtop.py\n"


@pytest.mark.parametrize("minor", [8, 9, 10, 11, 12, 13, 14])
def test_pythons_from_3_8_on_are_entered(session: Visited, folder: Path, minor: int) -> None:
    python = _python(f"python3.{minor}")
    write(
        folder,
        torch="__version__ = '9.9'",
        script="import torch\nprint(torch.__version__, type(torch.__spec__).__module__)",
    )

    plain, visited = (made(["script.py"], folder, python, **RANK) for made in (run, session.run))

    assert visited == plain
    (told,) = session.records("*.process.jsonl", "torch")
    assert told["version"] == "9.9"


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "python3.7"])
def test_older_pythons_pass_by(session: Visited, folder: Path, name: str) -> None:
    python = _python(name)
    write(folder, script="print('ran')")

    ended = session.run(["script.py"], folder, python, **RANK)

    assert (ended.code, ended.out, ended.err) == (0, "ran\n", "")
    assert session.files == []


def _python(name: str) -> str:
    """An interpreter of that name; a version manager's stub is not one."""
    found = shutil.which(name)
    if not found or subprocess.run([found, "-V"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no {name} here")
    return found
