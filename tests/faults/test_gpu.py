"""Faults that need GPUs and NCCL; they skip where there are none."""

from __future__ import annotations

import pytest

from faults.scripts import Start
from faults.test_hung import one_stops, stacks_of
from launch.supervised import wait_until
from torchtop.launch.preflight import count_gpus
from torchtop.session.paths import request_stacks, request_stop

needs_gpus = pytest.mark.skipif(count_gpus() < 2, reason="needs 2 GPUs")

NCCL = """
import datetime, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=30))
model = DistributedDataParallel(torch.nn.Linear(8, 1).cuda(), device_ids=[device])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train_step():
    optimizer.zero_grad()
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
    time.sleep(0.02)
"""


@needs_gpus
@pytest.mark.fault(18, "CUDA out of memory", "told as such, with memory at that moment")
def test_a_rank_without_gpu_memory_is_told_as_such(run: Start) -> None:
    session = run(
        NCCL
        + """
train_step()
up()
taken = []
while rank == 0 or len(taken) < 10**6:
    train_step() if rank == 0 else taken.append(torch.empty(1 << 30, device="cuda"))
""",
        device="cuda",
    )
    session.ended()
    exit = session.exit
    assert (exit["cause"], exit["rank"]) == ("out_of_memory", 1), exit
    assert exit["message"].startswith("rank 1 ran out of GPU memory: ")
    assert "Tried to allocate" in exit["message"] and "free" in exit["message"]
    assert session.living() == []


@needs_gpus
@pytest.mark.fault(19, "NCCL collective that times out", "hung within 10 s; stacks; later named")
def test_a_collective_that_a_rank_does_not_call_is_told_as_hung_and_later_named(
    run: Start,
) -> None:
    # given two ranks that have trained long enough to be judged
    session = run(
        NCCL
        + """
def stuck():
    (root / "stuck").write_text(str(time.monotonic_ns()))
    time.sleep(3600)

for step in range(10**9):
    train_step()
    step == 5 and up()
    if rank == 1 and (root / "hang").exists():
        stuck()
""",
        device="cuda",
    )
    # when one stops, then the run is told as hung within 10 s, with everyone's stacks
    one_stops(session)
    request_stacks(session.paths, "a test")
    (told,) = wait_until(lambda: session.events("stacks"), "the request is taken")
    stacks = wait_until(lambda: stacks_of(session, told), "both have written their stacks")
    assert "in stuck" in stacks[1] and "in train_step" in stacks[0]
    # and NCCL's own limit ends it, with a word on what it was; it may write a dump first
    wait_until(lambda: session.events("exit"), "NCCL gives up", 300.0)
    session.ended()
    exit = session.exit
    assert (exit["cause"], exit["rank"]) == ("timeout", 0), exit
    assert "timed out after 30 s" in exit["message"], exit
    assert session.living() == []


@needs_gpus
@pytest.mark.fault(9, "another workload during a stop (GPU)", "starts when GPU memory is free")
def test_the_end_of_a_run_is_told_when_its_gpu_memory_is_free(run: Start) -> None:
    # given a run that holds nearly all memory, and ignores the wish that it end
    script = """
import torch
signal.signal(signal.SIGTERM, signal.SIG_IGN)
device = int(os.environ["LOCAL_RANK"])
free, total = torch.cuda.mem_get_info(device)
held = torch.ones(int(free * 0.9), dtype=torch.uint8, device=device)
up()
"""
    session = run(script + "time.sleep(3600)", device="cuda")
    session.started(2)
    request_stop(session.paths, "stop", "a test")
    session.ended()
    assert not session.events("gpu_held")
    # then another finds room for as much, at once
    again = run(script, device="cuda")
    again.ended()
    assert again.exit["cause"] == "completed", again.exit
