"""From the words of ``sweep`` to its cells, on a machine that is made up; and bad words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchtop.cli import main, parse
from torchtop.commands import placement, sweep_plan
from torchtop.commands.errors import UsageError
from torchtop.commands.sweep_plan import Machine, make_plan
from torchtop.devices.model import GpuFact, GpuInventory
from torchtop.experiment.plan import Plan
from torchtop.experiment.runner import Limit
from torchtop.launch.interpreter import Interpreter
from torchtop.launch.spec import LaunchError

GPUS = tuple(GpuFact(index=i, uuid=f"GPU-{i}", name="NVIDIA H200") for i in range(2))
VERSIONS = {
    "new": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n",
    "old": "__version__ = '1.13.1+cu117'\ncuda = '11.7'\n",
    "cpu": "__version__ = '2.13.0+cpu'\ncuda = None\n",
}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, and three interpreters, of which one has a PyTorch for the CPU."""

    def inspect(path: str) -> Interpreter:
        name = path if path in (*VERSIONS, "bare") else "new"
        root = tmp_path / name
        if name in VERSIONS:
            root.mkdir(exist_ok=True)
            (root / "version.py").write_text(VERSIONS[name])
            (root / "distributed").mkdir(exist_ok=True)
            (root / "distributed" / "run.py").touch()
        return Interpreter(f"/{name}/python", "3.12.3", root if name in VERSIONS else None)

    inventory = GpuInventory(gpus=GPUS)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(placement, "query_gpus", lambda: inventory)
    monkeypatch.setattr(sweep_plan, "query_gpus", lambda: inventory)
    monkeypatch.setattr(sweep_plan, "inspect", inspect)
    monkeypatch.setattr(
        "torchtop.commands.request.inspect", lambda path: inspect(path.strip("/").split("/")[0])
    )


def planned(tmp_path: Path, words: str) -> tuple[Plan, Machine]:
    command = ["sweep", *words.split()]
    return make_plan(parse(command), command, tmp_path)


def skipped(plan: Plan) -> dict[str, str]:
    return {cell.id: cell.place.skip for cell in plan.cells if cell.place.skip}


def test_the_textbook_table(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, "resnet50-cifar10 --gpus 1,2")

    assert [(c.label, c.place.nproc, c.place.batch) for c in plan.cells] == [
        ("1 GPU", 1, 256),
        ("2 GPUs", 2, 256),
        ("1 GPU, batch_per_gpu=128", 1, 128),
    ]
    assert plan.device == "cuda"
    assert plan.command == ("sweep", "resnet50-cifar10", "--gpus", "1,2")


def test_options_with_several_values_are_axes_and_the_others_are_fixed(tmp_path: Path) -> None:
    words = "bert-base --gpus 1 -o compile=off,on -o amp=off -o amp=on -o batch_per_gpu=64"
    plan, _ = planned(tmp_path, words)

    assert [(axis.name, axis.values) for axis in plan.axes] == [
        ("compile", ("off", "on")),
        ("amp", ("off", "on")),
    ]
    assert plan.fixed == {"batch_per_gpu": "64"}
    assert [c.label for c in plan.cells][:2] == ["compile=off, amp=off", "compile=off, amp=on"]


def test_all_gpus_are_one_cell_where_nothing_is_said(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, "compute-heavy")

    assert [(cell.label, cell.devices) for cell in plan.cells] == [("2 GPUs", 2)]


def test_what_this_machine_cannot_do_is_skipped_with_a_reason(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, "resnet50-cifar10 --gpus 1,2,4 -o parallel=ddp,dp,single")

    assert skipped(plan) == {
        "gpus=4,parallel=ddp": "this machine has 2 GPUs",
        "gpus=4,parallel=dp": "this machine has 2 GPUs",
        "gpus=2,parallel=single": "parallel=single uses one device",
        "gpus=4,parallel=single": "parallel=single uses one device",
    }
    assert plan.cell("gpus=2,parallel=dp").place.nproc == 1


def test_what_an_interpreter_cannot_do_is_skipped_with_a_reason(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, "gpt2-small --gpus 1 --python new,old,cpu,bare -o compile=off,on")

    told = skipped(plan)
    assert "compile=on,python=/new/python" not in told
    assert told["compile=on,python=/old/python"].startswith("PyTorch 1.13.1+cu117 has no torch.com")
    assert told["compile=off,python=/cpu/python"] == "PyTorch 2.13.0+cpu is a CPU build"
    assert "PyTorch is not installed for /bare/python" in told["compile=off,python=/bare/python"]
    labels = [cell.label for cell in plan.cells]
    assert labels[:2] == ["compile=off, torch 2.11.0+cu130", "compile=off, torch 1.13.1+cu117"]


def test_dataparallel_is_not_compiled(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, "bert-base --gpus 2 -o parallel=ddp,dp -o compile=off,on")

    assert skipped(plan) == {"parallel=dp,compile=on": "DataParallel cannot be compiled"}


def test_a_cell_is_launched_as_run_would(tmp_path: Path) -> None:
    plan, machine = planned(tmp_path, "resnet50-cifar10 --gpus 1,2 -o parallel=dp,ddp")

    spec = machine.launch(plan.cell("gpus=2,parallel=dp"), Limit(None, 10.0, 20), plan, "x")
    assert (spec.nproc, spec.gpu_uuids) == (1, ("GPU-0", "GPU-1"))
    assert spec.args == ("--parallel=dp", "--seconds=10.0", "--warmup=20")
    assert spec.sweep == {"id": "x", "cell": "gpus=2,parallel=dp"}
    spec = machine.launch(plan.cell("gpus=2,parallel=ddp"), Limit(120, 10.0, 20), plan, "x")
    assert (spec.nproc, spec.steps) == (2, 120)
    assert "--steps=120" in spec.args
    assert "--seconds=10.0" not in spec.args


def test_on_the_cpu_ranks_are_counted(tmp_path: Path) -> None:
    plan, machine = planned(tmp_path, "gpt2-small --device cpu --nproc 1,2 -o batch=8")

    assert [cell.label for cell in plan.cells] == ["1 rank", "2 ranks", "1 rank, batch_per_gpu=4"]
    spec = machine.launch(plan.cells[1], Limit(30, 10.0, 5), plan, "x")
    assert (spec.device, spec.nproc) == ("cpu", 2)


def test_a_rank_has_as_many_threads_alone_as_among_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, machine = planned(tmp_path, "gpt2-small --device cpu --nproc 1,2,4 -o batch=8")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    limit = Limit(30, 10.0, 5)
    assert {machine.launch(c, limit, plan, "x").env["OMP_NUM_THREADS"] for c in plan.cells} == {"4"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in machine.launch(plan.cells[0], limit, plan, "x").env


OWN = """
[workloads.one]
script = "train.py"
nproc = 1
options = { lr = 0.1 }
[workloads.plain]
script = "train.py"
[workloads.pair]
script = "train.py"
gpus = 2
[workloads.first]
script = "train.py"
gpus = 1
[workloads.told]
command = ["bash", "train.sh"]
options = { lr = 0.1 }
[workloads.limited]
command = ["bash", "train.sh"]
gpus = 1
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with workloads of the user's own, who has agreed to them."""
    file = tmp_path / "config" / "torchtop" / "torchtop.toml"
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    file.chmod(0o600)
    (file.parent / "train.py").write_text("import torch\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "label", "launched"),
    [
        # what its file says counts, as for run
        ("one --device cpu", "1 rank", ("cpu", 1, ())),
        ("one", "1 GPU", ("cuda", 1, ("GPU-0",))),
        ("first", "1 GPU", ("cuda", 1, ("GPU-0",))),
        ("pair", "2 GPUs", ("cuda", 2, ("GPU-0", "GPU-1"))),
        ("pair --device cpu --nproc 3", "3 ranks", ("cpu", 3, ())),
        # and what is typed before it
        ("one --device cpu --nproc 2", "2 ranks", ("cpu", 2, ())),
        ("one --gpus 2", "2 GPUs", ("cuda", 2, ("GPU-0", "GPU-1"))),
        ("first --gpus 2", "2 GPUs", ("cuda", 2, ("GPU-0", "GPU-1"))),
        ("plain", "2 GPUs", ("cuda", 2, ("GPU-0", "GPU-1"))),
    ],
)
def test_a_workload_of_a_file_runs_where_its_file_says(
    words: str, label: str, launched: tuple[str, int, tuple[str, ...]], own: Path
) -> None:
    plan, machine = planned(own, words)
    spec = machine.launch(plan.cells[0], Limit(30, 10.0, 5), plan, "x")

    assert [cell.label for cell in plan.cells] == [label]
    assert (spec.device, spec.nproc, spec.gpu_uuids) == launched


@pytest.mark.parametrize(
    ("words", "labels", "gpus"),
    [
        ("told", ["its own ranks"], [()]),
        ("told --device cpu", ["its own ranks"], [()]),
        ("told -o lr=1,2", ["lr=1.0", "lr=2.0"], [(), ()]),
        ("told --gpus 1,2", ["1 GPU", "2 GPUs"], [("GPU-0",), ("GPU-0", "GPU-1")]),
        ("limited", ["1 GPU"], [("GPU-0",)]),
    ],
)
def test_of_a_command_only_the_gpus_that_it_is_given_are_counted(
    words: str, labels: list[str], gpus: list[tuple[str, ...]], own: Path
) -> None:
    plan, machine = planned(own, words)
    specs = [machine.launch(cell, Limit(None, 3.0, 5), plan, "x") for cell in plan.cells]

    assert [cell.label for cell in plan.cells] == labels
    assert {cell.place.nproc for cell in plan.cells} == {None}
    assert [spec.gpu_uuids for spec in specs] == gpus
    assert {(spec.measured_s, spec.warmup, spec.steps) for spec in specs} == {(3.0, 5, None)}
    assert not any("OMP_NUM_THREADS" in spec.env for spec in specs)
    assert Plan.load(_written(plan, own)).cells == plan.cells


def _written(plan: Plan, folder: Path) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan.to_json()))
    return path


@pytest.mark.parametrize("words", ["sweep told --nproc 1,2", "sweep told --python old"])
def test_a_command_cannot_be_given_ranks_or_an_interpreter(words: str, own: Path) -> None:
    option = words.split()[2]
    with pytest.raises(UsageError, match=f"^{option} does not go with told, a command that"):
        planned(own, words.removeprefix("sweep "))


def test_a_command_needs_no_interpreter_with_pytorch(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "bare")
    plan, _ = planned(own, "told --gpus 1,4")

    assert skipped(plan) == {"gpus=4": "this machine has 2 GPUs"}


def test_a_path_may_have_a_comma_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    plan, _ = planned(tmp_path, f"resnet50-cifar10 --gpus 1 -o data_dir={folder}")

    assert plan.fixed == {"data_dir": str(folder)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nope --gpus 1", "there is no workload nope"),
        ("train.py", "sweep takes a workload of the catalog"),
        ("resnet50-cifar10 -o bach=1,2", "did you mean batch?"),
        ("resnet50-cifar10 -o batch=1,x", "batch must be a whole number, not 'x'"),
        ("resnet50-cifar10 -o batch=", "batch must be a whole number"),
        ("resnet50-cifar10 -o batch", "write -o key=value"),
        ("resnet50-cifar10 --gpus 1,3", "batch 256 cannot be split evenly over 3 ranks"),
        ("resnet50-cifar10 --gpus 1,x", "give whole numbers of at least 1, as in 1,2,4"),
        ("resnet50-cifar10 --gpus 0", "give whole numbers of at least 1"),
        ("resnet50-cifar10 --gpus 1,,2", "one of the values is empty"),
        ("resnet50-cifar10 --device cpu --gpus 1", "--gpus does not go with --device cpu"),
        ("resnet50-cifar10 --device cuda --nproc 2", "--nproc is for ranks on the CPU"),
        ("resnet50-cifar10 -o data_dir=nowhere", "data_dir nowhere is not a folder"),
        ("resnet50-cifar10 -o steps=5,10", "a sweep measures all cells alike: use --steps"),
        ("bert-base -o width=100", "width 100 cannot be split over 12 heads"),
        ("bert-base -o batch=8 -o batch_per_gpu=4", "batch and batch_per_gpu say the same"),
    ],
)
def test_a_bad_word_is_told_in_one_line_before_anything_starts(
    words: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises((UsageError, LaunchError)) as caught:
        planned(tmp_path, words)

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "home" / "sweeps").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sweep", "name a workload"),
        ("sweep --resume", "there are no sweeps yet"),
        ("sweep --resume nope", "there are no sweeps yet"),
        ("sweep bert-base --resume x", "takes the id of a sweep, and no workload"),
        ("sweep bert-base --repeats 0", "at least 1, not '0'"),
        ("sweep bert-base --warmup 1", "at least 2"),
        ("sweep bert-base --spread many", "give a share such as 2%"),
        ("sweep bert-base --seconds soon", "give seconds"),
    ],
)
def test_a_bad_command_ends_with_one_line_and_status_2(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(words.split())
    except SystemExit as end:
        status = int(str(end.code))

    error = capsys.readouterr().err
    assert status == 2
    assert told in error
    assert error.count("\n") == 1
