"""Who is to blame, from evidence alone."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from torchtop.launch.exit_cause import Evidence, RankEvidence, Stop, codes_in, exit_record
from torchtop.launch.oom import OutOfMemory
from torchtop.session.records import CAUSES

MS = 1_000_000


def raised(rank: int, at_ms: int, kind: str, message: str) -> RankEvidence:
    exception = {"type": kind, "message": message, "traceback": "tb", "mono_ns": at_ms * MS}
    return RankEvidence(
        rank,
        100 + rank,
        exception=exception,
        exit_code=1,
        exit_ns=(at_ms + 1) * MS,
        gone_ns=(at_ms + 50) * MS,
    )


def vanished(rank: int, at_ms: int, status: int | None) -> RankEvidence:
    return RankEvidence(rank, 100 + rank, gone_ns=at_ms * MS, status=status)


def finished(rank: int, at_ms: int, code: int = 0) -> RankEvidence:
    return RankEvidence(
        rank, 100 + rank, exit_code=code, exit_ns=at_ms * MS, gone_ns=(at_ms + 50) * MS
    )


def judge(*ranks: RankEvidence, **fields: Any) -> dict[str, Any]:
    given = {"agent_code": 1, "agent_gone_ns": 10_000 * MS, **fields}
    record = exit_record(Evidence(ranks=ranks, **given))
    assert record["cause"] in CAUSES
    assert "\n" not in record["message"]
    return record


CLOSED = [
    "[/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4221",
    "[..] Connection reset by peer",
    "NCCL error: remote process exited or there was a network error",
    "failed to recv, got 0 bytes",
    "Broken pipe",
]


@pytest.mark.parametrize("said", CLOSED)
def test_a_victim_is_not_blamed_although_it_was_seen_first(said: str) -> None:
    # given a victim whose exception is recorded before the culprit is seen to go
    record = judge(raised(0, 10, "RuntimeError", said), vanished(1, 20, -signal.SIGSEGV))
    assert (record["cause"], record["rank"], record["signal"]) == ("signal", 1, "SIGSEGV")


def test_of_two_own_failures_the_earlier_counts_to_the_nanosecond() -> None:
    late = raised(0, 975, "KeyError", "'x'")
    early = vanished(1, 960, 7)
    assert judge(late, early)["rank"] == 1
    assert judge(raised(0, 950, "KeyError", "'x'"), early)["rank"] == 0


def test_a_victim_alone_is_told_for_want_of_anything_better() -> None:
    record = judge(raised(0, 10, "RuntimeError", "Connection refused"))
    assert (record["cause"], record["rank"]) == ("exception", 0)


def test_a_rank_that_torchrun_ended_is_no_culprit() -> None:
    log = "Unable to shutdown process 102 via 15, forcefully exiting via 9"
    record = judge(
        raised(0, 30, "RuntimeError", "Connection closed by peer"),
        finished(1, 10),
        vanished(2, 8000, -signal.SIGKILL),
        agent_log=log,
    )
    assert (record["rank"], record["code"]) == (1, 0)
    assert record["message"] == (
        "rank 1 left early with status 0, and rank 0 lost its connection to it"
    )


def test_a_rank_that_somebody_ended_is_named_before_its_victims() -> None:
    record = judge(
        vanished(1, 10, -signal.SIGTERM), raised(0, 30, "RuntimeError", "Connection closed by peer")
    )
    assert (record["cause"], record["rank"], record["signal"]) == ("signal", 1, "SIGTERM")


def test_a_rank_whose_end_nobody_saw_and_torchrun_did_not_list_left_with_status_0() -> None:
    record = judge(
        raised(0, 30, "RuntimeError", "Connection closed by peer"), vanished(1, 10, None)
    )
    assert (record["cause"], record["rank"]) == ("exit_code", 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ..."),
        ("torch.cuda.OutOfMemoryError", "CUDA out of memory."),
        ("RuntimeError", "CUDA error: out of memory\nCUDA kernel errors might be ..."),
    ],
)
def test_out_of_gpu_memory_has_a_cause_of_its_own(kind: str, message: str) -> None:
    record = judge(raised(3, 10, kind, message))
    assert (record["cause"], record["rank"]) == ("out_of_memory", 3)
    assert record["message"].startswith("rank 3 ran out of GPU memory: ")


def test_a_long_message_ends_with_a_sentence() -> None:
    # given what torch says, which has more to say than a message holds
    record = judge(
        raised(
            0,
            10,
            "torch.OutOfMemoryError",
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 "
            "GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 138.60 "
            "GiB memory in use. Of the allocated memory 100.01 GiB is allocated by PyTorch, and "
            "31.50 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
            "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid it.",
        )
    )
    assert record["message"].endswith("this process has 138.60 GiB memory in use. …")
    assert len(record["message"]) <= 300


def test_a_long_message_keeps_what_to_do_about_it() -> None:
    record = judge(raised(0, 9, "EOFError", "EOF when reading a line " + "and " * 200))
    assert record["message"].endswith("; ranks have no terminal: take input() and breakpoint() out")
    assert len(record["message"]) <= 300


def test_an_exception_tells_its_first_line_and_the_whole_traceback() -> None:
    record = judge(raised(0, 10, "ValueError", "first\x1b[2J\nsecond"))
    assert record["message"] == "rank 0 failed: ValueError: first"
    assert record["traceback"] == "tb"


def test_an_exit_code_of_the_script_is_told() -> None:
    record = judge(finished(2, 10, code=3))
    assert (record["cause"], record["rank"], record["code"]) == ("exit_code", 2, 3)


def test_a_crash_after_the_scripts_end_is_not_hidden_by_its_status_0() -> None:
    crashed = RankEvidence(0, 100, exit_code=0, exit_ns=5 * MS, gone_ns=9 * MS, status=-6)
    assert judge(crashed)["signal"] == "SIGABRT"


WATCHDOG = (
    "[rank{0}]:[E1130 10:00:00.1 ProcessGroupNCCL.cpp:688] [Rank {0}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=10000) ran for 10021 milliseconds before timing out."
)


def aborted(rank: int, at_ms: int) -> RankEvidence:
    said = WATCHDOG.format(rank)
    return RankEvidence(rank, 100 + rank, gone_ns=at_ms * MS, status=-signal.SIGABRT, timeout=said)


def test_a_watchdogs_abort_says_what_it_was() -> None:
    record = judge(aborted(0, 9), vanished(1, 20, -signal.SIGTERM), vanished(2, 20, -15))
    assert (record["cause"], record["rank"], record["signal"]) == ("timeout", 0, "SIGABRT")
    assert record["message"] == (
        "rank 0 waited in a collective operation (ALLREDUCE, number 7) until it timed out after "
        "10 s; another rank did not join it"
    )


def test_the_one_rank_that_did_not_wait_is_the_one_that_was_waited_for() -> None:
    record = judge(aborted(0, 9), vanished(1, 20, -signal.SIGTERM), aborted(2, 10))
    assert (record["cause"], record["rank"]) == ("timeout", 0)
    assert record["message"].endswith("; rank 1 did not join it")


def test_a_timeout_of_gloo_is_one_too() -> None:
    said = "[../unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to complete"
    record = judge(raised(0, 9, "RuntimeError", said), vanished(1, 20, -signal.SIGTERM))
    assert (record["cause"], record["rank"]) == ("timeout", 0)
    assert record["message"].endswith("timed out after 5 s; rank 1 did not join it")
    said = "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms"
    assert "barrier for rank 1, 3" in judge(raised(0, 9, "RuntimeError", said))["message"]


def test_a_sigkill_does_not_claim_to_know_who_it_was() -> None:
    record = judge(vanished(0, 1, -signal.SIGKILL))
    assert record["cause"] == "signal"
    assert record["message"] == "rank 0 was killed by SIGKILL, cause unknown"


def test_a_sigkill_of_the_kernels_is_host_memory() -> None:
    # given a cgroup that counts a kill
    killed = vanished(0, 1, -signal.SIGKILL)
    record = judge(killed, memory=OutOfMemory(kills=1, limit_bytes=1_200_000_000))
    assert (record["cause"], record["signal"]) == ("host_out_of_memory", "SIGKILL")
    assert record["message"] == (
        "rank 0 was killed: the host ran out of memory; the limit of its control group is 1.2 GB"
    )
    # also where it was torchrun that was killed
    record = judge(agent_code=-signal.SIGKILL, memory=OutOfMemory(kills=1))
    assert record["message"] == "torchrun was killed: the host ran out of memory"
    # and where the kernel's log says whom it killed, it is believed
    named = OutOfMemory(kills=1, pids=frozenset({100}))
    assert judge(killed, memory=named)["cause"] == "host_out_of_memory"
    another = OutOfMemory(kills=1, pids=frozenset({4242}))
    assert judge(killed, memory=another)["cause"] == "signal"


@pytest.mark.parametrize(
    ("said", "does"),
    [
        (
            "DataLoader worker (pid 77) is killed by signal: Killed. ",
            "lost a data-loader worker (pid 77), which was ended by SIGKILL",
        ),
        (
            "DataLoader worker (pid(s) 77, 78) exited unexpectedly",
            "lost a data-loader worker (pid 77, 78)",
        ),
        (
            "DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that "
            "dataloader's workers are out of shared memory.",
            "lost a data-loader worker (pid 77), which was ended by SIGBUS; /dev/shm is full: "
            "in a container set --shm-size, or use fewer workers",
        ),
    ],
)
def test_the_death_of_a_loader_is_told_as_such(said: str, does: str) -> None:
    record = judge(raised(1, 10, "RuntimeError", said))
    assert (record["cause"], record["rank"]) == ("loader_killed", 1)
    assert record["message"] == f"rank 1 {does}"
    # and where the kernel has killed for want of memory, that is why
    if "SIGBUS" not in does:
        record = judge(raised(1, 10, "RuntimeError", said), memory=OutOfMemory(kills=1))
        assert record["cause"] == "host_out_of_memory"


def test_a_full_disk_is_named() -> None:
    record = judge(raised(1, 10, "OSError", "[Errno 28] No space left on device: '/data/c.pt'"))
    assert (record["cause"], record["rank"]) == ("disk_full", 1)
    assert "/data/c.pt" in record["message"]
    # also where the full disk left no room for an exception
    assert judge(vanished(1, 10, 1), disk_free_bytes=0)["cause"] == "disk_full"
    assert judge(vanished(1, 10, 1), disk_free_bytes=1 << 30)["cause"] == "exit_code"


def test_a_question_that_nobody_can_answer_comes_with_a_hint() -> None:
    for kind, said in (("EOFError", "EOF when reading a line"), ("BdbQuit", "")):
        record = judge(raised(0, 10, kind, said))
        assert record["cause"] == "exception"
        assert record["message"].endswith("take input() and breakpoint() out")


@pytest.mark.parametrize(
    ("why", "cause"), [("user", "stopped"), ("duration", "duration"), ("steps", "steps")]
)
def test_a_stop_explains_what_came_after_it(why: str, cause: str) -> None:
    ranks = vanished(0, 50, -signal.SIGTERM), raised(1, 60, "RuntimeError", "loader was killed")
    assert judge(*ranks, stop=Stop(why, 40 * MS))["cause"] == cause


def test_a_stop_does_not_explain_what_came_before_it() -> None:
    record = judge(raised(1, 30, "ValueError", "x"), stop=Stop("user", 40 * MS))
    assert record["cause"] == "exception"


def test_a_killed_torchrun_is_the_cause_of_its_ranks_end() -> None:
    record = judge(
        vanished(0, 11, -signal.SIGKILL),
        vanished(1, 11, -signal.SIGKILL),
        agent_code=-signal.SIGKILL,
        agent_gone_ns=10 * MS,
    )
    assert (record["cause"], record["signal"], record["rank"]) == (
        "launcher_killed",
        "SIGKILL",
        None,
    )


def test_a_killed_torchrun_is_not_the_cause_of_what_failed_before() -> None:
    record = judge(
        raised(0, 5, "ValueError", "x"), agent_code=-signal.SIGKILL, agent_gone_ns=10 * MS
    )
    assert record["cause"] == "exception"


@pytest.mark.parametrize("spelling", ["15", "Signals.SIGTERM", "SIGTERM"])
def test_a_torchrun_that_says_it_was_signalled_is_believed(spelling: str) -> None:
    log = f"torch...api.SignalException: Process 4242 got signal: {spelling}\n"
    record = judge(vanished(0, 5, -signal.SIGTERM), agent_log=log)
    assert (record["cause"], record["signal"]) == ("launcher_killed", "SIGTERM")


def test_a_launch_that_fails_before_any_rank_says_why() -> None:
    record = judge(agent_tail=("Traceback ...", "ImportError: libcudart.so.13"))
    assert record["cause"] == "launch_failed"
    assert "libcudart" in record["message"]
    assert judge(launch_error="cannot start python")["message"] == "cannot start python"


def test_all_ranks_through_is_completed() -> None:
    record = judge(finished(0, 5), finished(1, 6), agent_code=0)
    assert (record["cause"], record["code"], record["message"]) == (
        "completed",
        0,
        "all 2 ranks finished",
    )


def test_a_command_is_judged_by_its_own_exit() -> None:
    assert judge(agent_code=0, is_command=True)["cause"] == "completed"
    assert judge(agent_code=3, is_command=True)["code"] == 3
    assert judge(agent_code=-9, is_command=True)["signal"] == "SIGKILL"


def test_codes_are_found_in_both_places_where_torchrun_writes_them() -> None:
    log = """
E1130 14:38 api.py:1003] failed (exitcode: -11) local_rank: 1 (pid: 77) of binary: /x/python
[0]:
  time      : 2026-11-30_14:38:34
  rank      : 0 (local_rank: 0)
  exitcode  : 7 (pid: 78)
Root Cause (first observed failure):
  exitcode  : -11 (pid: 77) Signal 11 (SIGSEGV)
"""
    assert codes_in(log) == {77: -11, 78: 7}
