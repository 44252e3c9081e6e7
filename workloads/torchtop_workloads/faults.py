"""Faults with a known answer: what is wrong, what must be told, and how to take it away.

Each fault is one training loop (`fault_runner`) with some settings changed, so that two of them
differ in the fault alone. Healthy controls and traps are among them. Standard library only.

The sizes aim at steps of 15 to 60 ms on an H200 that are limited by the GPU unless the fault says
otherwise, and at 30 to 150 ms on one core of a CPU. A pause of the host shows on a GPU only where
it outlasts what the host has queued: such a pause is longer than a step, so that the host is the
limit and never gets ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torchtop_workloads.registry import FAULT_PREFIX, Option, Value, Workload

MODULE = "torchtop_workloads.fault_runner"

SETTINGS: tuple[Option, ...] = (
    Option("batch", "int", 12288, "rows in a step over all ranks together", (), 1, 1536, True),
    Option("features", "int", 32, "numbers in a row", minimum=1),
    Option("ops", "int", 0, "tiny operations that prepare each batch", minimum=0),
    Option("width", "int", 4096, "width of the layers", (), 1, 192),
    Option("depth", "int", 12, "number of layers", (), 0, 6),
    Option("shared", "bool", False, "all layers have the same weights"),
    Option("batch_norm", "bool", False, "a batch normalisation, whose buffers DDP broadcasts"),
    Option("precision", "str", "bf16", "of the layers", ("bf16", "fp16", "fp32"), None, "fp32"),
    Option("scaler", "bool", False, "scale the loss, and look for overflows, in every step"),
    Option("graph", "bool", False, "replay the network as a CUDA graph (GPU only)"),
    Option(
        "optimizer", "str", "sgd", "adam-loop: tensor by tensor", ("sgd", "adam-loop", "adam-fused")
    ),
    Option("accumulate", "int", 1, "micro-batches in a step, all but one in no_sync", minimum=1),
    Option("synchronise", "bool", True, "average the gradients over the ranks"),
    Option("workers", "int", 0, "loader processes for each rank", minimum=0),
    Option("pin_memory", "bool", True, "page-locked host memory for loaded batches (GPU only)"),
    Option("load_ms", "float", 0.0, "waiting to load a batch, ms", minimum=0),
    Option("transform_ms", "float", 0.0, "computing to load a batch, ms", minimum=0),
    Option("slow_batch_every", "int", 16, "one batch in so many takes longer", minimum=1),
    Option("slow_batch_ms", "float", 0.0, "how much longer, ms", minimum=0),
    Option("host_mb", "int", 0, "MB of each batch that are copied from pageable memory", minimum=0),
    Option("slow_rank", "str", "1", "a rank, random (another each step), or all (sharing it)"),
    Option(
        "slow_phase",
        "str",
        "none",
        "where that rank is slow: data and host pause, forward and backward compute",
        ("none", "data", "forward", "backward", "host"),
    ),
    Option("delay_ms", "float", 20.0, "how much slower, ms", minimum=0),
    Option("item", "bool", False, "read the loss in every step"),
    Option("save_every", "int", 0, "steps between two checkpoints of rank 0; 0: none", minimum=0),
    Option("save_mb", "int", 400, "size of a checkpoint, MB", (), 1, 120),
    Option("gc_every", "int", 0, "steps between two collections; 0: none", minimum=0),
    Option("gc_objects", "int", 5_000_000, "objects to go through", (), 1, 2_000_000),
    Option("hoard", "bool", False, "ask for more memory than the allocator may keep (GPU only)"),
    Option("contender", "bool", False, "another process computes on the slow rank's GPU"),
)
"""What a fault may set; the defaults make a healthy run that is bound by computation."""

_RUN: tuple[Option, ...] = (
    Option("fault", "str", None, "code or name of the fault"),
    Option("fixed", "bool", False, "take the cause away"),
    Option("schedule", "str", None, "parts such as fault:9s,fixed:60,profile:16 (steps, seconds)"),
    Option("profile_dir", "str", None, "folder for the traces of profile parts"),
    Option("gate", "str", None, "wait until this file exists before the device is touched"),
    Option("steps", "int", None, "optimizer steps", minimum=1),
    Option("epochs", "int", 90, "passes over the data, where steps is not given", minimum=1),
    Option("seed", "int", 0, "seed of the weights and the data", minimum=0),
    Option("compile", "bool", False, "run the model through torch.compile"),
    Option("data", "str", "made", "batches are made up", ("made",)),
    Option("parallel", "str", "ddp", "DistributedDataParallel", ("ddp",)),
)


@dataclass(frozen=True)
class Fault:
    """One fault, trap or healthy control.

    Attributes:
        code: as in the matrix, such as ``F6b``.
        name: in words, with dashes.
        summary: what is done, in one line.
        expected: the kinds of verdict that are right, the one that fits best first.
        settings: what differs from the defaults of `SETTINGS`.
        fix: settings that take the cause away and leave the rest.
        cpu: further settings on a CPU; None where the fault does not exist there.
        ranks: the ranks that a right verdict may name (None: no single one); empty: any.
        phases: the phases that a right verdict may name; empty: any.
        healthy: nothing is wrong: a verdict of these kinds is right up to a note, and none above.
        env: variables to set before the ranks meet.
    """

    code: str
    name: str
    summary: str
    expected: tuple[str, ...]
    settings: Mapping[str, Value] = field(default_factory=dict)
    fix: Mapping[str, Value] = field(default_factory=dict)
    cpu: Mapping[str, Value] | None = field(default_factory=dict)
    ranks: tuple[int | None, ...] = ()
    phases: tuple[str, ...] = ()
    healthy: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[str, ...]:
        """The types of device on which the fault exists."""
        return ("cuda",) if self.cpu is None else ("cuda", "cpu")

    def is_right(
        self,
        kind: str,
        severity: str,
        rank: int | None = None,
        phase: str | None = None,
        world_size: int = 2,
    ) -> bool:
        """Whether a verdict names this fault.

        Args:
            kind: of the verdict.
            severity: of the verdict.
            rank: that it names.
            phase: that it names.
            world_size: the number of ranks: with one alone, it is the slow one.
        """
        slow = {None if r is None else min(r, world_size - 1) for r in self.ranks}
        if kind not in self.expected:
            return False
        if self.healthy:
            return severity in ("ok", "note")
        return (
            severity in ("note", "warn", "critical")
            and (not slow or rank in slow)
            and (not self.phases or phase is None or phase in self.phases)
        )

    def options(self) -> tuple[Option, ...]:
        """Every option of a run of this fault, with its settings as defaults."""
        return tuple(self._preset(option) for option in SETTINGS) + _RUN

    def _preset(self, option: Option) -> Option:
        cpu = self.cpu or {}
        if option.name not in self.settings and option.name not in cpu:
            return option
        value = self.settings.get(option.name, option.default)
        on_cpu = cpu.get(option.name, value if option.name in self.settings else option.cpu_default)
        return replace(option, default=value, cpu_default=on_cpu)


def _loader(code: str, name: str, summary: str, **more: Value) -> Fault:
    slow = {"workers": 4, "load_ms": 320.0}
    return Fault(code, name, summary, ("DATA",), {**slow, **more}, {"load_ms": 0.0})


def _straggler(
    code: str, name: str, summary: str, *phases: str, rank: int = 1, **more: Value
) -> Fault:
    phase = more.get("slow_phase", phases[0])
    settings = {"slow_phase": phase, "slow_rank": str(rank), **more}
    cpu = {"workers": 1, "delay_ms": 250.0} if phase == "data" else {"delay_ms": 40.0}
    fix = {"slow_phase": "none"}
    return Fault(code, name, summary, ("STRAGGLER",), settings, fix, cpu, (rank,), phases)


_WIDE: dict[str, Value] = {"width": 8192, "depth": 8}
_TOUCHY: dict[str, Value] = {"ops": 1000, "depth": 6}
"""Tiny operations come before the layers: a host that has not got ahead delays the rest.

They take a host 5 to 10 ms in all and an H200 3; the layers take the H200 12 ms and the host 4.
Without a wait the host is done before the device, which sets the pace. With one, the device has
nothing but tiny operations to do until they are all issued. More than about 1000 would not fit into
the launch queue, and a backward through them would make the host the limit in any case.
"""

FAULTS: tuple[Fault, ...] = (
    Fault(
        "F0",
        "healthy",
        "large matrix products on batches that are there",
        ("COMPUTE-BOUND",),
        healthy=True,
    ),
    replace(
        _loader("F1", "slow-loader", "loader workers that need longer than a step"),
        cpu={"workers": 2, "load_ms": 500.0},
    ),
    Fault(
        "F1h",
        "hidden-loader",
        "trap: the host prepares each batch while the GPU still computes",
        ("COMPUTE-BOUND",),
        {"transform_ms": 10.0},
        cpu={"transform_ms": 0.0, "load_ms": 30.0, "workers": 2},
        healthy=True,
    ),
    Fault(
        "F1b",
        "slow-batch",
        "one batch in sixteen takes so long that the others wait behind it",
        ("DATA",),
        {"workers": 4, "slow_batch_ms": 900.0},
        {"slow_batch_ms": 0.0},
        cpu={"workers": 2, "slow_batch_every": 12, "slow_batch_ms": 1500.0},
    ),
    Fault(
        "F2",
        "no-workers",
        "the training process itself prepares each batch, for longer than a step",
        ("DATA",),
        {"transform_ms": 60.0},
        {"transform_ms": 0.0},
    ),
    Fault(
        "F3",
        "pageable-batch",
        "a large batch is copied from memory that is not page-locked",
        ("H2D",),
        {"host_mb": 400},
        {"host_mb": 0},
        cpu=None,
    ),
    Fault(
        "F4",
        "tiny-ops",
        "hundreds of small layers: the host cannot issue them fast enough",
        ("LAUNCH",),
        # Weights of their own would each cost the host its time in backward, in a graph as well.
        {"width": 128, "depth": 150, "shared": True, "batch": 128, "precision": "fp32"},
        {"graph": True},
        cpu=None,
    ),
    Fault(
        "F5",
        "large-gradients",
        "gigabytes of gradients for a small batch",
        ("COMM",),
        {**_WIDE, "batch": 32},
        {"synchronise": False},
        cpu={"width": 1024, "batch": 8},
    ),
    Fault(
        "F5s",
        "sockets",
        "gradients go through the loopback network instead of NVLink",
        ("COMM",),
        {"width": 4096, "depth": 4, "batch": 32},
        {"synchronise": False},
        cpu=None,
        env={
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1",
            "NCCL_IB_DISABLE": "1",
            "NCCL_SOCKET_IFNAME": "lo",
        },
    ),
    Fault(
        "F5n",
        "accumulation",
        "control: large gradients, averaged once in four micro-batches",
        ("COMPUTE-BOUND", "COMM"),
        {**_WIDE, "batch": 8192, "accumulate": 4},
        cpu={"width": 192, "depth": 6, "batch": 1536},
        healthy=True,
    ),
    _straggler("F6d", "slow-data", "one rank's loader is slow", "data", workers=2, delay_ms=160.0),
    _straggler("F6f", "slow-forward", "one rank computes more in forward", "forward"),
    _straggler("F6b", "slow-backward", "one rank computes more in backward", "backward"),
    _straggler(
        "F6h", "slow-host", "one rank's host pauses", "forward", slow_phase="host", delay_ms=80.0
    ),
    Fault(
        "F6r",
        "rotating",
        "another rank computes more in each step",
        ("STRAGGLER",),
        {"slow_phase": "forward", "slow_rank": "random"},
        {"slow_rank": "all"},
        cpu={"delay_ms": 40.0},
        ranks=(None,),
        phases=("forward",),
    ),
    Fault(
        "F7",
        "garbage",
        "one rank goes through millions of objects now and then",
        ("PERIODIC", "STRAGGLER"),
        {"gc_every": 50},
        {"gc_every": 0},
        cpu={"gc_every": 10},
        ranks=(1, None),
    ),
    Fault(
        "F8",
        "allocator",
        "tensors of changing sizes near the limit of the memory",
        ("MEMORY PRESSURE", "SYNC"),
        {"hoard": True},
        {"hoard": False},
        cpu=None,
    ),
    Fault(
        "F9",
        "contention",
        "another process computes on one rank's GPU",
        ("CONTENTION", "STRAGGLER"),
        {"contender": True},
        {"contender": False},
        cpu=None,
        ranks=(1, None),
    ),
    Fault(
        "F10",
        "read-loss",
        "the loss is read in every step, by a host that had to be ahead",
        ("SYNC",),
        {**_TOUCHY, "item": True},
        {"item": False},
        cpu=None,
    ),
    Fault(
        "F10g",
        "read-loss-hidden",
        "trap: the loss is read in every step, where the GPU is the limit",
        ("COMPUTE-BOUND", "SYNC"),
        {"item": True},
        {"item": False},
        healthy=True,
    ),
    Fault(
        "F11",
        "checkpoint",
        "rank 0 writes a checkpoint every few steps",
        ("PERIODIC",),
        {"save_every": 20},
        {"save_every": 0},
        cpu={"save_every": 10},
    ),
    Fault(
        "F12",
        "scaler",
        "a gradient scaler looks for overflows before every optimizer step",
        ("SYNC",),
        {**_TOUCHY, "precision": "fp16", "scaler": True},
        {"scaler": False},
        cpu=None,
    ),
    _straggler(
        "F13",
        "broadcast",
        "rank 0's loader is slow, and the others wait for its buffers in forward",
        "data",
        rank=0,
        workers=2,
        delay_ms=160.0,
        batch_norm=True,
    ),
    Fault(
        "F14",
        "optimizer",
        "Adam goes from tensor to tensor",
        ("OPTIMIZER",),
        {**_WIDE, "batch": 4096, "optimizer": "adam-loop"},
        {"optimizer": "adam-fused"},
        cpu={"width": 16, "depth": 200, "batch": 64},
    ),
)
"""The matrix, in order."""


def find(name: str) -> Fault:
    """The fault of that code (in any case) or name.

    Raises:
        KeyError: there is none.
    """
    for fault in FAULTS:
        if name.lower() in (fault.code.lower(), fault.name):
            return fault
    raise KeyError(name)


def workload(name: str) -> Workload:
    """The fault of that code or name as a workload.

    Raises:
        KeyError: there is none.
    """
    fault = find(name)
    teaches = ("healthy, " if fault.healthy else "") + " or ".join(fault.expected)
    full = FAULT_PREFIX + fault.code
    return Workload(full, MODULE, fault.summary, teaches, fault.options(), fault.devices)
