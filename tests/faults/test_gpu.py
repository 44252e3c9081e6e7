"""Faults that need GPUs and NCCL; they skip where there are none.

Two ranks on one GPU each, where there are two. Else both share the one: NCCL allows that to ranks
that it takes for those of two hosts, and lets them talk through the loopback network.
"""

from __future__ import annotations

import pytest

from faults.scripts import Start
from faults.test_hung import one_stops, stacks_of
from launch.supervised import wait_until
from torchtop.launch.preflight import count_gpus
from torchtop.session.paths import request_stacks, request_stop

GPUS = count_gpus()

needs_gpus = pytest.mark.skipif(GPUS < 1, reason="needs a GPU")

ON_GPUS: dict[str, object] = {"device": "cuda"}
if GPUS == 1:
    # A launch takes as many ranks as it has names of GPUs; CUDA reads up to one that it knows not.
    ON_GPUS["gpu_uuids"] = ("0", "shared")

DEVICE = """
import torch
device = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
sharing = int(os.environ["WORLD_SIZE"]) // torch.cuda.device_count()
if sharing > 1:
    os.environ.update(NCCL_HOSTID=f"rank {rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
"""

NCCL = (
    DEVICE
    + """
import datetime
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
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
)


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
        **ON_GPUS,
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
        **ON_GPUS,
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
    script = (
        DEVICE
        + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
total = torch.cuda.mem_get_info(device)[1]
held = torch.ones(int(total * 0.9 / sharing), dtype=torch.uint8, device=device)
up()
"""
    )
    session = run(script + "time.sleep(3600)", **ON_GPUS)
    session.started(2)
    request_stop(session.paths, "stop", "a test")
    session.ended()
    assert not session.events("gpu_held")
    # then another finds room for as much, at once
    again = run(script, **ON_GPUS)
    again.ended()
    assert again.exit["cause"] == "completed", again.exit
