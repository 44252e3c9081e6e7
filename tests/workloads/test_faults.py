"""Workloads with a known fault: the table, and real ranks that train with each."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import torchtop
import torchtop_workloads
from torchtop_workloads import arguments
from torchtop_workloads.faults import FAULTS, MODULE, SETTINGS, Fault, find
from torchtop_workloads.registry import find as find_workload

pytest.importorskip("torch")

import torch

from torchtop_workloads import fault_contender, fault_parts, fault_runner, models

ON_CPU = [fault for fault in FAULTS if "cpu" in fault.devices]
STEPS = 12
TINY = ["--batch=16", "--width=8", "--depth=2", "--delay-ms=1"]
TINY += ["--load-ms=1", "--transform-ms=1", "--slow-batch-ms=1"]
SMALL = {"F7": ["--gc-every=5", "--gc-objects=100"], "F11": ["--save-every=5", "--save-mb=1"]}
Ranks = list[dict[str, Any]]


def names(faults: list[Fault]) -> Any:
    return pytest.mark.parametrize("fault", faults, ids=lambda fault: fault.code)


# -- the table -----------------------------------------------------------------------------------


def test_codes_and_names_are_each_ones_own() -> None:
    assert len({fault.code.lower() for fault in FAULTS}) == len(FAULTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@names(list(FAULTS))
def test_every_fault_sets_options_to_values_that_may_be_given(fault: Fault) -> None:
    known = {option.name: option for option in SETTINGS}
    for settings in (fault.settings, fault.cpu or {}, fault.fix):
        for name, value in settings.items():
            assert known[name].parse(str(value)) == value
            assert type(known[name].parse(str(value))) is type(value)


@names(list(FAULTS))
def test_every_fault_that_is_one_can_be_taken_away(fault: Fault) -> None:
    assert fault.fix or fault.healthy
    changed = {**{option.name: option.default for option in SETTINGS}, **fault.settings}
    assert all(changed[name] != value for name, value in fault.fix.items())


@names(list(FAULTS))
def test_every_fault_is_found_as_a_workload(fault: Fault) -> None:
    for name in (fault.code, fault.code.lower(), fault.name):
        assert find(name) is fault
        workload = find_workload(f"fault:{name}")
        assert workload.name == f"fault:{fault.code}"
        assert workload.devices == fault.devices
    assert workload.path.is_file()


def test_an_unknown_fault_is_no_workload() -> None:
    with pytest.raises(KeyError):
        find_workload("fault:F99")


def test_a_default_is_the_faults_own_on_each_device() -> None:
    options = {option.name: option for option in find("F5").options()}
    assert options["width"].default_for("cuda", 2) == 8192
    assert options["width"].default_for("cpu", 2) == 1024
    assert options["batch"].default_for("cuda", 2) == 2 * 32
    plain = {option.name: option for option in find("F0").options()}
    assert plain["batch"].default_for("cpu", 2) == 2 * 1536


@pytest.mark.parametrize(
    ("code", "verdict", "right"),
    [
        ("F6b", ("STRAGGLER", "critical", 1, "backward"), True),
        ("F6b", ("STRAGGLER", "critical", 0, "backward"), False),
        ("F6b", ("STRAGGLER", "critical", 1, "forward"), False),
        ("F6b", ("COMM", "critical", 1, "backward"), False),
        ("F6r", ("STRAGGLER", "warn", None, "forward"), True),
        ("F6r", ("STRAGGLER", "warn", 1, "forward"), False),
        ("F1", ("DATA", "note", None, "data"), True),
        ("F1", ("UNDECIDED", "unknown", None, None), False),
        ("F0", ("COMPUTE-BOUND", "ok", None, None), True),
        ("F5n", ("COMM", "note", None, None), True),
        ("F5n", ("COMM", "warn", None, None), False),
        ("F9", ("CONTENTION", "critical", 1, None), True),
        ("F9", ("CONTENTION", "critical", 0, None), False),
        ("F9", ("CONTENTION", "critical", 0, None, 1), True),  # alone, it is the slow rank
    ],
)
def test_a_verdict_is_right_or_wrong(code: str, verdict: tuple[Any, ...], right: bool) -> None:
    assert find(code).is_right(*verdict) is right


def test_what_prepares_a_batch_is_nothing_that_backward_goes_through() -> None:
    weights = torch.ones(2, requires_grad=True)

    assert not fault_parts.prepare(weights, 2).requires_grad
    assert fault_parts.prepare(weights, 1).tolist() == pytest.approx([math.sin(1)] * 2)
    assert fault_parts.prepare(weights.detach(), 0).tolist() == [1, 1]


def test_layers_that_share_their_weights_have_them_once() -> None:
    alone, shared = (models.fronted_perceptron(4, 0, 8, 50, shared=s) for s in (False, True))

    assert len(list(alone.parameters())) == 2 * (50 + 2)
    assert len(list(shared.parameters())) == 2 * (1 + 2)
    assert len(list(shared.modules())) < len(list(alone.modules()))


def test_a_fault_that_a_cpu_cannot_have_is_refused_there_in_one_line() -> None:
    with pytest.raises(ValueError, match="needs a GPU"):
        find_workload("fault:F9").check({}, 2, "cpu")


@names(list(FAULTS))
def test_help_names_every_option(fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments.parse(find_workload(f"fault:{fault.code}"), ["--help"])
    text = capsys.readouterr().out
    assert all(option.flag in text for option in fault.options())


# -- the schedule --------------------------------------------------------------------------------


def test_a_schedule_has_parts_of_steps_and_of_seconds() -> None:
    assert fault_runner.schedule("fault:9.5s, fixed:60,profile:16") == [
        fault_runner.Part("fault", None, 9.5),
        fault_runner.Part("fixed", 60),
        fault_runner.Part("profile", 16),
    ]
    assert fault_runner.schedule(None) == []


@pytest.mark.parametrize("text", ["fault", "fault:", "fault:x", "other:3", "fault:0", "fault:-3s"])
def test_a_bad_schedule_is_told_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        fault_runner.schedule(text)
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


# -- training ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def runs(traces: Path) -> dict[str, Ranks]:
    """Every fault on two ranks, with its cause and without, and some variations."""
    both = f"--schedule=fault:{STEPS},fixed:{STEPS}"
    plan = {f.code: [f"--fault={f.code}", both, *TINY, *SMALL.get(f.code, [])] for f in ON_CPU}
    plan["plain"] = ["--fault=slow-backward", "--steps=3", *TINY]
    plan["fixed"] = [*plan["plain"], "--fixed=on"]
    plan["seconds"] = ["--fault=F0", "--schedule=fault:0.3s,fixed:2", *TINY]
    profile = ["--schedule=profile:4", f"--profile-dir={traces}", *TINY]
    plan["profile"] = ["--fault=F1", *profile, "--workers=1"]
    plan["unknown"] = ["--fault", "F99"]
    plan["gpu"] = ["--fault=F3", "--steps=1"]
    plan["bad rank"] = ["--fault=F6b", "--steps=1", "--slow-rank=last"]
    items = [{"module": MODULE, "argv": argv, "ranks": 2} for argv in plan.values()]
    roots = [Path(module.__path__[0]).parent for module in (torchtop_workloads, torchtop)]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forked_ranks.py")), json.dumps(items)],
        env={
            **os.environ,
            "TORCHTOP_DEVICE": "cpu",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": os.pathsep.join(map(str, roots)),
        },
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return dict(zip(plan, json.loads(done.stdout), strict=True))


@names(ON_CPU)
def test_a_fault_trains_with_its_cause_and_without(runs: dict[str, Ranks], fault: Fault) -> None:
    for rank in runs[fault.code]:
        assert rank["status"] == 0, rank["output"]
        assert len(rank["losses"]) == 2 * STEPS
        assert all(math.isfinite(loss) for loss in rank["losses"])
        assert rank["facts"]["fault"] == fault.code
        part = rank["facts"]["part"]
        assert (part["mode"], part["from_step"], part["to_step"]) == ("fixed", STEPS, 2 * STEPS)
        assert part["settled_step"] == STEPS + fault_runner.WARM_UP
        assert part["settled_ns"] < part["end_ns"]


@names(ON_CPU)
def test_a_fault_changes_the_time_of_a_step_and_not_what_it_computes(
    runs: dict[str, Ranks], fault: Fault
) -> None:
    # The model and the batches of both parts are alike. Adam's variants round differently, and
    # without synchronisation each rank goes its own way.
    first, second = runs[fault.code]
    for rank in (first, second):
        with_cause, without = rank["losses"][:STEPS], rank["losses"][STEPS:]
        close = 1e-3 if set(fault.fix) & {"optimizer", "synchronise"} else 0.0
        assert with_cause == pytest.approx(without, rel=close, abs=0.0)
    if fault.code != "F5":
        assert first["gradients"] == second["gradients"]


def test_without_a_schedule_the_options_say_how_long(runs: dict[str, Ranks]) -> None:
    for name, mode in (("plain", "fault"), ("fixed", "fixed")):
        for rank in runs[name]:
            assert rank["status"] == 0, rank["output"]
            assert len(rank["losses"]) == 3
            assert rank["facts"]["total_steps"] == 3
            assert rank["facts"]["part"]["mode"] == mode


def test_all_ranks_agree_on_the_steps_that_fit_into_some_seconds(runs: dict[str, Ranks]) -> None:
    first, second = runs["seconds"]
    assert first["status"] == second["status"] == 0, first["output"] + second["output"]
    assert first["facts"]["part"]["to_step"] == second["facts"]["part"]["to_step"]
    assert len(first["losses"]) == len(second["losses"]) > fault_runner.WARM_UP


def test_each_rank_leaves_a_trace_of_numbered_steps(runs: dict[str, Ranks], traces: Path) -> None:
    for index, rank in enumerate(runs["profile"]):
        assert rank["status"] == 0, rank["output"]
        events = json.loads((traces / f"trace-{index}.json").read_text())["traceEvents"]
        found = {e["name"] for e in events if e.get("cat") == "user_annotation"}
        steps = fault_runner.WARM_UP + 4
        assert rank["facts"]["part"]["to_step"] == steps
        assert {f"torchtop.step#{step}" for step in range(2, steps)} <= found
        assert "torchtop.step#1" not in found


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("unknown", "name a fault: --fault NAME, with NAME one of F0 F1 "),
        ("gpu", "fault:F3: this needs a GPU: it cannot happen on a CPU\n"),
        ("bad rank", "slow_rank must be a number, random or all, not 'last'\n"),
    ],
)
def test_what_cannot_be_run_ends_with_one_line(
    runs: dict[str, Ranks], name: str, line: str
) -> None:
    for rank in runs[name]:
        assert rank["status"] == 2
        assert line in rank["output"]
        assert "Traceback" not in rank["output"]


# -- the contending process ----------------------------------------------------------------------


def state(pid: int | None) -> str:
    """As in /proc: R or S while it runs, T stopped; gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def becomes(pid: int | None, states: str) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if state(pid) in states.split():
            return True
        time.sleep(0.01)
    return False


def test_a_contender_computes_while_it_is_wanted_and_ends_with_the_script() -> None:
    # given
    with fault_contender.Contender("cpu") as contender:
        # when, then
        contender.set_busy(True)
        assert becomes(contender.pid, "R S")
        contender.set_busy(False)
        assert becomes(contender.pid, "T")
        contender.set_busy(True)
        assert becomes(contender.pid, "R S")
    assert becomes(contender.pid, "gone")


def test_a_contender_dies_with_a_script_that_is_killed() -> None:
    # given a script with a contender
    code = (
        "import sys, signal\n"
        "from torchtop_workloads.fault_contender import Contender\n"
        "contender = Contender('cpu')\n"
        "contender.set_busy(True)\n"
        "print(contender.pid, flush=True)\n"
        "signal.pause()\n"
    )
    root = str(Path(torchtop_workloads.__path__[0]).parent)
    script = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    pid = int(script.stdout.readline())
    # when
    script.send_signal(signal.SIGKILL)
    script.communicate()
    # then
    assert becomes(pid, "gone Z")


def test_without_a_contender_nothing_is_started() -> None:
    with fault_contender.Contender(None) as contender:
        contender.set_busy(True)
        assert contender.pid is None
