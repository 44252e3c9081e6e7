"""A script does not notice that `rank.py` runs it: the same words printed as by plain Python."""

from __future__ import annotations

import ast
import signal
import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from probe.staged import Ended, Stage, run

LOOK = """
import sys
names = sorted(globals())
print(names, __name__, __file__, __spec__ and __spec__.name, __package__, __doc__, __cached__)
print(type(__loader__).__name__, getattr(__loader__, "name", None), __builtins__.__name__)
print(sys.argv, sys.path[0], [w for w in sys.orig_argv[1:]], sys.flags)
print(sys.modules["__main__"].__dict__ is globals(), "torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage.make(tmp_path_factory.mktemp("session"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__slash__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


def both(stage: Stage, words: list[str], cwd: Path, **options: str) -> tuple[Ended, Ended]:
    """The same by plain Python and by rank.py."""
    return run(words, cwd, **options), run([stage.rank_py, *words], cwd, **options)


def assert_same(stage: Stage, words: list[str], cwd: Path, **options: str) -> Ended:
    plain, probed = both(stage, words, cwd, **options)
    assert probed == plain
    return plain


@pytest.mark.parametrize(
    "words",
    [
        ["script.py"],
        ["./script.py", "--lr", "0.1", "-m", "x", "--", "a b", ""],
        ["../{name}/script.py"],
        ["{folder}/script.py", "-u"],
        ["link.py"],
        ["sub/../script.py"],
    ],
)
def test_what_a_script_can_see_of_itself(stage: Stage, folder: Path, words: list[str]) -> None:
    write(folder, script=LOOK, sub__slash__x="")
    (folder / "elsewhere").mkdir()
    (folder / "link.py").symlink_to(folder / "script.py")
    words = [word.format(name=folder.name, folder=folder) for word in words]

    plain = assert_same(stage, words, folder)

    assert plain.code == 0
    assert "__main__" in plain.out


def test_a_link_to_a_script_elsewhere_brings_that_folder(stage: Stage, folder: Path) -> None:
    write(folder, real__slash__script="import beside, sys; print(sys.path[0], __file__)")
    write(folder, real__slash__beside="")
    (folder / "link.py").symlink_to("real/script.py")

    assert str(folder / "real") in assert_same(stage, ["link.py"], folder).out


@pytest.mark.parametrize(
    "words", [["-m", "script", "a", "b"], ["-m", "package"], ["-m", "package.inner", "x"]]
)
def test_modules_run_as_modules(stage: Stage, folder: Path, words: list[str]) -> None:
    inner = LOOK + "\nfrom .helper import VALUE\nfrom . import __name__ as p\nprint(VALUE, p)\n"
    write(
        folder,
        script=LOOK,
        package__slash____init__="",
        package__slash____main__=inner,
        package__slash__inner=inner,
        package__slash__helper="VALUE = 7",
    )

    assert assert_same(stage, words, folder).code == 0


def test_folders_and_archives_run(stage: Stage, folder: Path) -> None:
    write(folder, app__slash____main__=LOOK + "\nimport beside", app__slash__beside="print('here')")
    with zipfile.ZipFile(folder / "app.pyz", "w") as archive:
        for file in (folder / "app").iterdir():
            archive.write(file, file.name)

    for words in (["app", "x"], ["app/"], ["app.pyz", "y"]):
        assert "here" in assert_same(stage, words, folder).out


def test_compiled_scripts_run(stage: Stage, folder: Path) -> None:
    write(folder, script="print('compiled', __name__)")
    run(["-c", "import py_compile; py_compile.compile('script.py', cfile='c.pyc')"], folder)

    assert assert_same(stage, ["c.pyc"], folder).out == "compiled __main__\n"


def test_standard_input_output_and_encodings(stage: Stage, folder: Path) -> None:
    (folder / "script.py").write_bytes(
        b"# -*- coding: latin-1 -*-\nprint('\xe9', input(), 1 / 2, end='')\n"
    )

    assert assert_same(stage, ["script.py"], folder, stdin="told\n").out == "é told 0.5"


def test_no_future_of_ours_holds_in_the_script(stage: Stage, folder: Path) -> None:
    write(
        folder,
        script="""
        def f(x: 1 + 1): pass
        print(f.__annotations__)
        x: int = 3
        print(__annotations__)
        """,
    )

    assert assert_same(stage, ["script.py"], folder).out.startswith("{'x': 2}")


def test_classes_of_the_script_can_be_pickled(stage: Stage, folder: Path) -> None:
    write(
        folder,
        script="""
        import pickle
        class Config:
            def __init__(self, lr): self.lr = lr
        text = pickle.dumps(Config(0.1))
        print(pickle.loads(text).lr, Config.__module__, text)
        """,
    )

    assert assert_same(stage, ["script.py"], folder).out.startswith("0.1 __main__")


@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"], ["-m", "package.script"]])
def test_processes_can_be_spawned_from_the_script(
    stage: Stage, folder: Path, words: list[str]
) -> None:
    text = """
    import multiprocessing, sys
    def work(queue, thing):
        queue.put((__name__, thing.value, sys.argv[1:]))
    class Thing:
        value = 7
    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=work, args=(queue, Thing()))
        process.start()
        print(queue.get(timeout=30), flush=True)
        process.join()
    """
    write(folder, script=text, package__slash____init__="", package__slash__script=text)

    assert assert_same(stage, [*words, "a"], folder).out == "('__mp_main__', 7, ['a'])\n"


def test_a_fork_of_the_script_writes_nothing(stage: Stage, folder: Path) -> None:
    write(
        folder,
        script="import os\nif os.fork() == 0:\n    raise SystemExit(3)\nos.wait()\nprint('parent')",
    )
    known = {record["mono_ns"] for record in stage.process("exit")}

    ended = run([stage.rank_py, "script.py"], folder)

    assert (ended.code, ended.out) == (0, "parent\n")
    told = [record for record in stage.process("exit") if record["mono_ns"] not in known]
    assert [record["code"] for record in told] == [0]


# -- modules of the same names as ours or the standard library's -----------------------------------


@pytest.mark.parametrize(
    "name", ["json", "queue", "signal", "ctypes", "platform", "typing", "socket"]
)
def test_a_module_beside_the_script_is_found_as_by_plain_python(
    stage: Stage, folder: Path, name: str
) -> None:
    write(folder, script=f"import {name}\nprint({name}.__file__)", **{name: "OURS = 1"})

    assert str(folder) in assert_same(stage, ["script.py"], folder).out


def test_a_module_on_pythonpath_is_found_as_by_plain_python(stage: Stage, folder: Path) -> None:
    write(folder, script="import json\nprint(json.VALUE)", lib__slash__json="VALUE = 7")

    for words in (["script.py"], ["-m", "script"]):
        ended = assert_same(stage, words, folder, PYTHONPATH=str(folder / "lib"))
        assert ended.out == "7\n"


@pytest.mark.parametrize(
    "name", ["_torchtop", "probe", "session", "records", "facts", "hooks", "main", "entry"]
)
def test_modules_of_our_names_beside_the_script_do_not_meet_ours(
    stage: Stage, folder: Path, name: str
) -> None:
    if name != "_torchtop":
        write(folder, script=f"import {name}\nprint({name}.OURS)", **{name: "OURS = 1"})
        assert assert_same(stage, ["script.py"], folder).out == "1\n"
    write(folder, script="import importlib.util\nprint('ok')")
    assert assert_same(stage, ["script.py"], folder, PYTHONPATH=str(folder)).out == "ok\n"


def test_broken_modules_on_pythonpath_do_not_keep_the_script_from_running(
    stage: Stage, folder: Path
) -> None:
    bad = "raise RuntimeError('not meant for you')"
    names = (
        "json",
        "pathlib",
        "traceback",
        "importlib",
        "runpy",
        "weakref",
        "threading",
        "platform",
    )
    write(folder, script="print('ran')", **{f"lib__slash__{name}": bad for name in names})

    assert run([stage.rank_py, "script.py"], folder, PYTHONPATH=str(folder / "lib")).out == "ran\n"


def test_the_folder_of_rank_py_is_not_on_the_path(stage: Stage, folder: Path) -> None:
    write(folder, script="import sys\nprint([p for p in sys.path if 'session' in p])")

    told = run([stage.rank_py, "script.py"], folder).out

    # At the end, for an interpreter that has no torchtop.
    assert told == f"[{str(stage.root / 'stage' / 'fallback')!r}]\n"


def test_an_isolated_interpreter_stays_isolated(stage: Stage, folder: Path) -> None:
    write(folder, script="import sys\nprint(sys.path[0], sys.flags)")

    plain = run(["script.py"], folder, flags=("-I", "-u"))
    probed = run([stage.rank_py, "script.py"], folder, flags=("-I", "-u"))

    assert probed == plain


# -- torchtop in the script ------------------------------------------------------------------------


def test_the_script_can_import_torchtop_where_there_is_none(stage: Stage, folder: Path) -> None:
    write(folder, script="import torchtop\nprint(torchtop.__file__)\ntorchtop.log(loss=1.0)")

    ended = run([stage.rank_py, "script.py"], folder)

    assert ended.code == 0
    assert ended.out == f"{stage.root / 'stage' / 'fallback' / 'torchtop' / '__init__.py'}\n"


def test_a_torchtop_that_is_there_comes_first(stage: Stage, folder: Path) -> None:
    write(folder, script="import torchtop\nprint(torchtop.MINE)", torchtop="MINE = 1")

    assert run([stage.rank_py, "script.py"], folder).out == "1\n"


def test_a_checkout_named_torchtop_is_no_package(stage: Stage, folder: Path) -> None:
    (folder / "torchtop").mkdir()
    write(folder, script="import torchtop\ntorchtop.log(loss=1)\nprint('ok')")

    assert run([stage.rank_py, "script.py"], folder).out == "ok\n"


def test_the_built_in_workloads_can_be_run_where_there_are_none(stage: Stage, folder: Path) -> None:
    write(folder, script="import torchtop_workloads\nprint(torchtop_workloads.__file__)")

    assert str(stage.root) in run([stage.rank_py, "script.py"], folder).out


# -- ends ------------------------------------------------------------------------------------------

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int)
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(): return 1 / 0\nf()", 1),
        ("try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('x') from e", 1),
        ("try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('x')", 1),
        ("raise ExceptionGroup('g', [ValueError(1), KeyError(2)])", 1),
        ("def f(:\n", 1),
        ("    x = 1\n", 1),
        ("import json\njson.loads('{')", 1),
        ("class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E", 1),
        ("import sys\nsys.exit(3)", 3),
        ("import sys\nsys.exit()", 0),
        ("import sys\nsys.exit('went wrong')", 1),
        ("import sys\nsys.exit([1, 2])", 1),
        ("exit(4)", 4),
        ("import os\nos._exit(5)", 5),
        (ARGPARSE, 2),
        ("import atexit\natexit.register(print, 'bye')\n1 / 0", 1),
        ("import sys\nsys.excepthook = lambda t, e, tb: print('hook', t, e, tb.tb_lineno)\n1/0", 1),
        ("import warnings\nwarnings.warn('old', DeprecationWarning)", 0),
        ("import threading\nthreading.Thread(target=lambda: 1 / 0).start()", 0),
    ],
)  # fmt: skip
def test_ends_are_plain_pythons(stage: Stage, folder: Path, text: str, code: int) -> None:
    (folder / "script.py").write_text(text)

    for words in (["script.py", "--n", "x"], ["-m", "script", "--n", "x"]):
        plain, probed = both(stage, words, folder)
        assert probed.code == plain.code == code
        assert probed.out == plain.out
        assert probed.err == plain.err


def test_a_script_that_is_not_there(stage: Stage, folder: Path) -> None:
    plain = assert_same(stage, ["nosuch.py"], folder)

    assert plain.code == 2
    assert "No such file or directory" in plain.err


def test_a_module_that_is_not_there(stage: Stage, folder: Path) -> None:
    assert assert_same(stage, ["-m", "nosuch.module"], folder).code == 1


def test_an_exception_is_written_down(stage: Stage, folder: Path) -> None:
    write(folder, script="def train():\n    raise ValueError('no \\n such')\ntrain()")

    ended = run([stage.rank_py, "script.py"], folder)

    told = stage.process("exception")[-1]
    assert (told["type"], told["message"]) == ("ValueError", "no \n such")
    assert told["traceback"] == ended.err
    assert told["traceback"].startswith("Traceback (most recent call last):\n  File")
    assert "rank.py" not in told["traceback"]
    assert stage.process("exit")[-1]["code"] == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [("pass", 0), ("raise SystemExit(7)", 7), ("exit('x')", 1), ("raise KeyboardInterrupt", 130)],
)
def test_the_exit_code_is_written_down(stage: Stage, folder: Path, text: str, code: int) -> None:
    (folder / "script.py").write_text(text)
    known = {record["mono_ns"] for record in stage.process("exit")}

    run([stage.rank_py, "script.py"], folder)

    (told,) = [record for record in stage.process("exit") if record["mono_ns"] not in known]
    assert told["code"] == code


TRAINS = """
import os, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(steps):
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""


def test_a_rank_that_leaves_at_once_has_told_all_its_steps(tmp_path: Path) -> None:
    # Given one that ends itself as multiprocessing does what it has forked, which it has done, too
    stage = Stage.make(tmp_path / "session")
    leaves = "train(2) if os.fork() == 0 else (os.wait(), train(200))\nos._exit(3)"
    write(tmp_path, script=TRAINS + leaves)

    assert run([stage.rank_py, "script.py"], tmp_path).code == 3

    assert stage.rank_records(0, "totals")[-1]["to_step"] == 200


def test_an_interrupt_ends_the_script_as_it_ends_any(stage: Stage, folder: Path) -> None:
    (folder / "script.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)")

    assert assert_same(stage, ["script.py"], folder).code == -signal.SIGINT


def test_the_stacks_of_a_rank_that_hangs_can_be_had(stage: Stage, folder: Path) -> None:
    (folder / "script.py").write_text(
        "import os, signal\ndef stuck():\n    os.kill(os.getpid(), signal.SIGUSR2)\nstuck()"
    )

    assert run([stage.rank_py, "script.py"], folder).code == 0

    stacks = "".join(f.read_text() for f in (stage.root / "ranks").glob("*.stacks"))
    assert "in stuck" in stacks


def test_a_session_directory_that_is_gone_does_not_keep_the_script_from_running(
    folder: Path,
) -> None:
    stage = Stage.make(folder / "s")
    (stage.root / "ranks").rmdir()
    write(folder, script="print('ran')")

    assert run([stage.rank_py, "script.py"], folder) == Ended(0, "ran\n", "")


# -- torch -----------------------------------------------------------------------------------------

FAKE_TORCH = """
import os
print("torch sees", os.environ.get("SET_BEFORE"))
__version__ = "9.9"
"""


def test_torch_is_imported_when_the_script_does_it_and_not_before(
    stage: Stage, folder: Path
) -> None:
    """What the script sets up before the import holds; here with a stand-in for torch."""
    torches = len(stage.process("torch"))
    write(
        folder,
        torch=FAKE_TORCH,
        script="""
        import importlib.util, os, sys
        assert "torch" not in sys.modules
        assert importlib.util.find_spec("torch").origin.endswith("torch.py")  # as transformers asks
        assert "torch" not in sys.modules
        os.environ["SET_BEFORE"] = "1"
        import torch
        loader = torch.__spec__.loader
        print(torch.__version__, type(loader).__name__, loader is torch.__loader__)
        print(vars(loader).keys(), len(sys.meta_path))
        """,
    )

    ended = assert_same(stage, ["script.py"], folder)

    assert ended.out.startswith("torch sees 1\n9.9 SourceFileLoader True\n")
    assert len(stage.process("torch")) == torches + 1
    assert stage.process("torch")[-1]["version"] == "9.9"
    # It is no torch that the probe knows: it says so, and the script runs.
    assert "no attribute 'is_grad_enabled'" in stage.process("probe")[-1]["disabled"]


def test_a_torch_that_cannot_be_imported_fails_as_by_plain_python(
    stage: Stage, folder: Path
) -> None:
    write(
        folder,
        torch="import os\nif 'FIXED' not in os.environ:\n    raise OSError('libcudart.so.99')",
        script="""
        import os
        try:
            import torch
        except OSError as error:
            print("failed", error)
        os.environ["FIXED"] = "1"
        import torch
        print("imported")
        """,
    )

    ended = assert_same(stage, ["script.py"], folder)

    assert ended.out == "failed libcudart.so.99\nimported\n"


def test_an_import_of_torch_that_fails_shows_no_frame_of_ours(stage: Stage, folder: Path) -> None:
    write(folder, torch="import torch_parts", torch_parts="1 / 0", script="import torch")

    plain = assert_same(stage, ["script.py"], folder)

    assert plain.err.count("  File ") == 3


def test_without_torch_the_import_fails_as_by_plain_python(stage: Stage, folder: Path) -> None:
    write(folder, script="import sys\nsys.path[:] = sys.path[:1]\nimport torch")

    assert "No module named 'torch'" in assert_same(stage, ["script.py"], folder).err


# -- what is staged --------------------------------------------------------------------------------


def test_what_is_staged_is_fit_for_older_pythons(stage: Stage) -> None:
    files = [Path(stage.rank_py), *(stage.root / "stage" / "_torchtop").rglob("*.py")]
    files.append(stage.root / "stage" / "fallback" / "torchtop" / "__init__.py")

    assert len(files) > 10
    for file in files:
        ast.parse(file.read_text(), str(file), feature_version=(3, 8))


def test_what_is_staged_imports_the_standard_library_alone(stage: Stage) -> None:
    for file in (stage.root / "stage" / "_torchtop").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or top == "torch", (file, name)


def test_no_compiled_file_is_staged(folder: Path) -> None:
    assert list((Stage.make(folder / "s").root / "stage").rglob("*.pyc")) == []
