"""Who may import whom: each package in a fresh interpreter, and every import statement."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUI = ROOT / "tui"
WORKLOADS = ROOT / "workloads"
STDLIB = sys.stdlib_module_names

STAGED = [
    *sorted((TUI / "torchtop/probe").glob("*.py")),
    TUI / "torchtop/session/appender.py",
    TUI / "torchtop/session/records.py",
    TUI / "torchtop/session/room.py",
]
"""What runs in the ranks, on the Python and with the packages of somebody else."""

IMPORT_ALL = """
import importlib, pkgutil
package = importlib.import_module({name!r})
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


def run_python(python: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def loaded_by(code: str) -> set[str]:
    """The modules that some code brings into a fresh interpreter."""
    program = (
        "import json, sys\n"
        f"sys.path[:0] = {[str(TUI), str(WORKLOADS)]!r}\n"
        "before = set(sys.modules)\n"
        f"{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    run = run_python(sys.executable, program)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def top_levels(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def imports_of(file: Path, root: Path) -> Iterator[str]:
    """Every name that a file imports, in functions too: ``package.module`` or ``module.name``."""
    package = file.relative_to(root).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_importing_torchtop_brings_in_itself_alone() -> None:
    assert loaded_by("import torchtop") <= {"torchtop", "__future__"}


def test_logging_outside_torchtop_brings_in_nothing() -> None:
    assert loaded_by("import torchtop; torchtop.log(loss=1.0)") <= {"torchtop", "__future__"}


@pytest.mark.parametrize("package", ["session", "diagnose"])
def test_the_facts_need_the_standard_library_alone(package: str) -> None:
    # when
    loaded = loaded_by(IMPORT_ALL.format(name=f"torchtop.{package}"))
    # then
    assert top_levels(loaded) - STDLIB == {"torchtop"}
    ours = {module for module in loaded if module.count(".") == 1 and module.startswith("torchtop")}
    assert ours <= {"torchtop.session", "torchtop.diagnose"}


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("torchtop.devices", {"torch", "torchvision", "textual", "rich"}),
        ("torchtop.launch", {"torch", "torchvision", "textual", "rich"}),
        ("torchtop.experiment", {"torch", "torchvision", "textual", "rich", "pynvml", "psutil"}),
        ("torchtop.app", {"torch", "torchvision", "pynvml"}),
        ("torchtop.htmlreport", {"torch", "textual", "rich", "pynvml", "tensorboard"}),
        ("torchtop.export", {"torch", "textual", "rich", "pynvml", "tensorboard", "numpy"}),
    ],
)
def test_a_package_never_loads(package: str, never: set[str]) -> None:
    assert not top_levels(loaded_by(IMPORT_ALL.format(name=package))) & never


def test_a_report_loads_matplotlib_only_to_draw() -> None:
    pages = "import torchtop.htmlreport.session_page, torchtop.htmlreport.sweep_page"
    loaded = loaded_by(f"{pages}, torchtop.commands.report")
    assert top_levels(loaded) - STDLIB == {"torchtop"}


def test_the_catalog_of_workloads_loads_no_torch() -> None:
    loaded = top_levels(loaded_by("import torchtop_workloads.registry"))
    assert loaded - STDLIB == {"torchtop_workloads"}


@pytest.mark.parametrize(
    ("folder", "root", "allowed"),
    [
        (
            "torchtop/session",
            TUI,
            ("torchtop.session", "torchtop.diagnose"),
        ),
        ("torchtop/diagnose", TUI, ("torchtop.session", "torchtop.diagnose")),
        (
            "torchtop/probe",
            TUI,
            ("torchtop.session.records", "torchtop.session.room", "torchtop.probe", "torch"),
        ),
        (
            "torchtop/experiment",
            TUI,
            ("torchtop.session", "torchtop.diagnose", "torchtop.launch", "torchtop.experiment"),
        ),
        # numpy comes with torchvision: CIFAR-10's own files hold its arrays.
        (
            "torchtop_workloads",
            WORKLOADS,
            ("torchtop.log", "torchtop_workloads", "torch", "torchvision", "numpy"),
        ),
    ],
)
def test_every_import_statement_is_allowed(
    folder: str, root: Path, allowed: tuple[str, ...]
) -> None:
    offences = [
        f"{file.relative_to(root)}: {name}"
        for file in sorted((root / folder).rglob("*.py"))
        for name in imports_of(file, root)
        if name.partition(".")[0] not in STDLIB
        and not any(name == known or name.startswith(f"{known}.") for known in allowed)
    ]
    assert offences == []


@pytest.mark.parametrize("file", STAGED, ids=lambda file: file.name)
def test_what_runs_in_the_ranks_is_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_the_records_import_on_python_3_8() -> None:
    python = shutil.which("python3.8")
    if not python or run_python(python, "").returncode:
        pytest.skip("there is no Python 3.8 here")
    code = f"import sys; sys.path[:0] = [{str(TUI)!r}]; import torchtop.session.records"
    run = run_python(python, code)
    assert run.returncode == 0, run.stderr
