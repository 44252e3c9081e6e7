"""Keeps the table of faults, and looks at the end whether the tests have left a process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.table import TAG, Table, holding_gpus, left_running

_table = pytest.StashKey[Table]()
_left = pytest.StashKey[list[str]]()
_held = pytest.StashKey[list[str] | None]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_table] = Table()
    os.environ[TAG] = secrets.token_hex(8)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("fault"):
            item.user_properties.append(("fault", mark.args))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    table = item.config.stash[_table]
    for name, fault in item.user_properties:
        if name != "fault":
            continue
        row = table.took(*fault, seconds=report.duration)
        if report.failed or report.when == "call" or report.skipped:
            row.outcomes.append(report.outcome)
        if report.skipped and isinstance(report.longrepr, tuple):
            row.reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    factory = getattr(session.config, "_tmp_path_factory", None)
    folder: Path | None = getattr(factory, "_basetemp", None)
    left = left_running(os.environ[TAG], folder)
    held = holding_gpus(folder)
    session.config.stash[_held] = held
    left += [f"{pid}, which holds GPU memory" for pid in held or ()]
    session.config.stash[_left] = left
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    table, left = config.stash[_table], config.stash.get(_left, [])
    if table.rows:
        terminalreporter.section("faults")
        for line in table.lines():
            terminalreporter.write_line(line)
        gpus = "" if config.stash.get(_held, None) is None else ", and no GPU memory is held"
        terminalreporter.write_line(
            f"{len(left)} processes are left" if left else f"no process is left{gpus}"
        )
    for line in left:
        terminalreporter.write_line(f"LEFT RUNNING: {line}", red=True)
