"""Advice states the fact that it rests on, and never recommends what is so already."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.cases import CASES, played
from diagnose.made import row, window
from diagnose.play import play
from diagnose.sim_records import Sampler, Told, records
from diagnose.simulator import Job, Rank, simulate
from torchtop.diagnose.candidate import Candidate
from torchtop.diagnose.context import Learnt, gather
from torchtop.diagnose.facts import Facts, GpuFacts, HostFacts, RankFacts
from torchtop.diagnose.frontier import account
from torchtop.diagnose.pace import Paces
from torchtop.diagnose.pauses import NO_PAUSES, Pauses, Recurring
from torchtop.diagnose.ranks import RankState
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.told import healthy, tell
from torchtop.diagnose.told.case import Case

COMPUTE = {"forward": 20_000, "backward": 30_000, "data": 30_000, "exposed": 200}
IDLE = GpuFacts(index=0, util_percent=99.0, tensor_active=0.01, dram_active=0.7)
BF16 = {"matmul_dtypes": ["bfloat16"], "autocast": "bfloat16"}
FP32 = {"matmul_dtypes": ["float32"], "autocast": False, "float32_matmul_precision": "highest"}


def advice(
    kind: str,
    phase: str | None = None,
    cause: str | None = None,
    loader: dict[str, Any] | None = None,
    pauses: Pauses = NO_PAUSES,
    **known: Any,
) -> str:
    """What is advised against a bottleneck, in one text."""
    ranks = tuple(RankFacts(n, "a", loader or {}, queue=8) for n in (0, 1))
    hosts = {"a": known.pop("host", HostFacts())}
    case = Case(
        Candidate(kind, 0.4, None, phase, 0.4, cause=cause),
        window(COMPUTE, COMPUTE),
        Facts(ranks=ranks, hosts=hosts, **known),
        DEFAULT,
        pauses,
    )
    return "\n".join(tell.TELLERS[kind].advice(case)[n] or "" for n in range(_count(case)))


def _count(case: Case) -> int:
    return len(tell.TELLERS[case.candidate.kind].advice(case))


def healthy_advice(gpu: GpuFacts = IDLE, **known: Any) -> str:
    facts = Facts(ranks=(RankFacts(0, "a", gpu=gpu),), **known)
    return "\n".join(healthy.advice(window(COMPUTE), facts, DEFAULT))


# ------------------------------------------------------------------------------------- precision
def test_tensor_cores_are_for_products_that_do_not_use_them() -> None:
    assert "matrix products are in float32: torch.autocast" in healthy_advice(precision=FP32)
    assert "set_float32_matmul_precision" in healthy_advice(precision=FP32)
    assert "autocast" in healthy_advice()


@pytest.mark.parametrize(
    "known",
    [
        {"precision": BF16},
        {"precision": {"matmul_dtypes": ["float16"], "autocast": "float16"}},
        {"precision": {"matmul_dtypes": None, "autocast": "bfloat16"}},
        {"script": {"amp": True}},
    ],
)
def test_autocast_is_not_advised_where_it_is_on(known: dict[str, Any]) -> None:
    assert "autocast" not in healthy_advice(**known)
    assert "amp" not in advice("LAUNCH", **known)


@pytest.mark.parametrize("told", [{"float32_matmul_precision": "high"}, {"matmul_tf32": True}])
def test_tf32_is_not_advised_where_it_is_on(told: dict[str, Any]) -> None:
    text = healthy_advice(precision=FP32 | told)

    assert "TF32" not in text
    assert "torch.autocast" in text


def test_a_scaler_is_told_by_what_is_scaled() -> None:
    def told(**precision: Any) -> str:
        return advice("SYNC", "pre_optimizer", precision=precision)

    assert "bf16 autocast needs no GradScaler" in told(autocast="float16")
    assert "autocast is bfloat16, which needs no GradScaler" in told(autocast="bfloat16")
    assert "nothing is computed in float16" in told(autocast=False)
    assert "GradScaler" not in advice("SYNC", "other")


def test_deterministic_kernels_are_told() -> None:
    assert "deterministic" in healthy_advice(precision={"deterministic": True})
    assert "deterministic" not in healthy_advice(precision={"deterministic": False})


# --------------------------------------------------------------------------------------- compile
@pytest.mark.parametrize(
    "known",
    [
        {"compiling": {"model": True, "step": False, "graph_breaks": 0}},
        {"compiling": {"model": False, "step": True}},
        {"script": {"compile": True}},
    ],
)
def test_compiling_is_not_advised_where_it_is_so(known: dict[str, Any]) -> None:
    assert "torch.compile(" not in advice("LAUNCH", **known)
    assert "the model is compiled already" in advice("LAUNCH", **known)
    assert "torch.compile" in healthy_advice()
    assert "torch.compile" not in healthy_advice(**known)


def test_graph_breaks_are_told_where_the_host_is_the_limit() -> None:
    compiling = {"model": True, "graph_breaks": 7}

    assert "compiled, with 7 graph breaks" in advice("LAUNCH", compiling=compiling)


def test_shapes_that_change_are_told_where_long_steps_recur() -> None:
    long = Pauses((Recurring("", 0.3, 1e6, 1e6, 40, 9, None, "forward"),))

    many = advice("PERIODIC", pauses=long, compiling={"model": True, "graphs": 23})
    few = advice("PERIODIC", pauses=long, compiling={"model": True, "graphs": 2})

    assert "torch.compile has made 23 graphs so far: dynamic=True" in many
    assert "graphs" not in few


# ------------------------------------------------------------------------------------- old torch
@pytest.mark.parametrize(
    ("torch", "advised"), [("1.13.1", False), ("2.1.0+cu121", True), (None, True)]
)
def test_what_a_pytorch_does_not_have_is_not_advised(torch: str | None, advised: bool) -> None:
    assert ("torch.compile(model" in advice("LAUNCH", torch=torch)) == advised
    assert ("torch.compile" in healthy_advice(torch=torch)) == advised
    assert advised or "make_graphed_callables" in advice("LAUNCH", torch=torch)


def test_an_option_of_later_loaders_is_told_as_one() -> None:
    def told(torch: str | None) -> str:
        return advice("DATA", "data", "head_of_line", torch=torch)

    assert "in_order" not in told("2.5.1")
    assert "in_order=False lets batches that are ready go first" in told("2.6.0")
    assert "2.6 or later" in told(None)
    assert "async_save" not in advice("PERIODIC", pauses=SAVES, torch="2.0.1")
    assert "async_save" in advice("PERIODIC", pauses=SAVES, torch="2.11.0")


@pytest.mark.parametrize("what", ["save", "eval", "gc"])
@pytest.mark.parametrize("torch", ["2.0.1", "2.11.0"])
def test_what_comes_at_no_fixed_distance_is_told_without_one(what: str, torch: str) -> None:
    irregular = Pauses((Recurring(what, 0.3, 1e6, 1e6, None, 9, None),))

    assert "None" not in advice("PERIODIC", pauses=irregular, torch=torch)
    assert ("less often" in advice("PERIODIC", pauses=irregular, torch=torch)) == (what != "gc")


SAVES = Pauses((Recurring("save", 0.3, 1e6, 1e6, 40, 9, 0),))


# ----------------------------------------------------------------------------------- batches, ddp
@pytest.mark.parametrize(
    ("loader", "advised"),
    [
        ({"pin_memory": False}, True),
        ({"pin_memory": False, "first_batch": {"bytes": 100, "pinned": False}}, True),
        ({"pin_memory": True}, False),
        ({"pin_memory": False, "first_batch": {"bytes": 100, "pinned": True}}, False),
        ({"pin_memory": False, "first_batch": {"bytes": 0, "device_bytes": 100}}, False),
        ({}, False),
    ],
)
def test_pinning_is_advised_to_batches_on_the_host_that_are_not(
    loader: dict[str, Any], advised: bool
) -> None:
    for cause in ("storage", "main_process"):
        assert ("pin_memory" in advice("DATA", "data", cause, loader)) == advised


def test_a_copy_is_pinned_where_the_loader_can_do_it() -> None:
    loader = {"pin_memory": False, "first_batch": {"bytes": 10**9, "samples": 1}}
    custom = {"first_batch": {"bytes": 10**9, "samples": 1, "pinned": False}}

    assert "pin_memory=True in the DataLoader (it is off)" in advice(
        "H2D", "forward", "unpinned", loader
    )
    assert "tensor.pin_memory()" in advice("H2D", "forward", "unpinned", custom)


def test_batches_that_were_seen_on_the_device_are_no_copies() -> None:
    # given batches without workers, which a probe has looked at
    job = Job(ranks=(Rank(),) * 2, steps=160)
    first = {"bytes": 0, "device_bytes": 400_000_000, "pinned": False, "samples": 64}
    told = Told(loader={"first_batch": first, "pin_memory": False})

    out = play(records(simulate(job), sampler=Sampler(), told=told))

    assert "H2D" not in {candidate["kind"] for candidate in out.last["candidates"]}


def test_workers_are_advised_where_there_are_none() -> None:
    none = {"workers": 0}

    assert "num_workers above 0" in advice("DATA", "data", "no_workers", none)
    busy = HostFacts(cores=8, cpu_percent=99.0, ranks=2)
    assert "num_workers" not in advice("DATA", "data", "no_workers", none, host=busy)


def test_gradients_that_a_hook_handles_are_left_to_it() -> None:
    ddp = {"gradient_bytes": 4 * 10**8, "parameters": 10**8}

    assert "bf16_compress_hook" in advice("COMM", "exposed_comm", ddp=ddp)
    hooked = ddp | {"comm_hook": "fp16_compress_hook"}
    assert "compress" not in advice("COMM", "exposed_comm", ddp=hooked)


# -------------------------------------------------------------------------------------- the facts
def test_facts_come_from_the_records_of_the_lowest_rank() -> None:
    state = RankState(0, 0, "ranks/0-0-1.jsonl", {"torch": "2.11.0+cu130"})
    for subject, fields in (
        ("precision", BF16),
        ("compile", {"model": True, "graphs": 3, "graph_breaks": "odd"}),
    ):
        state.take_facts({"subject": subject} | fields)
    steps = [account([row(step, forward=10)]) for step in (20, 21)]

    facts = gather({0: state}, {}, steps, Learnt({}, Paces()), 0, DEFAULT)

    assert (facts.compiled, facts.graphs, facts.low_precision) == (True, 3, True)
    assert facts.compiling["graph_breaks"] is None
    assert facts.has_torch(2, 11)
    assert not facts.has_torch(3, 0)


@pytest.mark.parametrize("name", CASES)
def test_whoever_is_told_a_bottleneck_is_told_what_to_change(name: str) -> None:
    verdict = played(name).verdict

    assert verdict["evidence"]
    assert verdict["advice"] or verdict["kind"] == "COMPUTE-BOUND"
    for sentence in (*verdict["evidence"], *verdict["advice"]):
        assert "None" not in sentence.replace("=None", "")
        assert len(sentence) <= 200
