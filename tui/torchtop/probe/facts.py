"""Facts of the objects that a training loop is made of. They are read once, not on every step."""

from __future__ import annotations

import operator
import os
import platform
import sys
from typing import Any, Dict, List, Optional

Facts = Dict[str, Any]


def identity() -> Facts:
    """Which rank this process is, from torchrun's environment (a lone process is rank 0 of 1)."""

    def number(name: str, default: int) -> int:
        try:
            return int(os.environ.get(name, default))
        except ValueError:
            return default

    return {
        "rank": number("RANK", 0),
        "local_rank": number("LOCAL_RANK", 0),
        "world_size": number("WORLD_SIZE", 1),
        "attempt": number("TORCHELASTIC_RESTART_COUNT", 0),
    }


def versions(torch: Any, cuda: bool) -> Facts:
    """Versions of what computes and communicates; null where it takes no part."""
    nccl = cudnn = backend = None
    if cuda:
        try:
            nccl = ".".join(str(part) for part in torch.cuda.nccl.version())
        except Exception:
            nccl = None  # a build without NCCL
        cudnn = torch.backends.cudnn.version()
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        backend = str(distributed.get_backend())
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "nccl": nccl,
        "cudnn": cudnn,
        "backend": backend,
    }


def device(torch: Any, index: Optional[int]) -> Facts:
    """The device that a rank computes on; `index` is CUDA's, None on a CPU."""
    if index is None:
        return {"type": "cpu", "index": None, "name": platform.machine(), "uuid": None}
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    return {
        "type": "cuda",
        "index": index,
        "name": properties.name,
        # torch leaves out the prefix that NVML has.
        "uuid": None if uuid is None else "GPU-" + str(uuid).replace("GPU-", ""),
    }


def loader(iterator: Any) -> Facts:
    """The settings of a DataLoader, from its iterator."""
    sampler = getattr(iterator, "_index_sampler", None)
    try:
        batches = len(sampler) if sampler is not None else None
    except Exception:
        batches = None  # a sampler of the user's that does not know
    workers: List[Any] = list(getattr(iterator, "_workers", ()))
    return {
        "workers": int(getattr(iterator, "_num_workers", 0)),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "pin_memory": bool(getattr(iterator, "_pin_memory", False)),
        "persistent_workers": bool(getattr(iterator, "_persistent_workers", False)),
        "batch_size": _whole(getattr(sampler, "batch_size", None)),
        "batches": batches,
        "dataset": type(getattr(iterator, "_dataset", None)).__name__,
        "worker_pids": [worker.pid for worker in workers],
    }


def _whole(value: Any) -> Optional[int]:
    """An integer, also one of numpy's, or None."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def ready(iterator: Any) -> Optional[int]:
    """Batches that wait in a DataLoader's queues, or None where there is no queue."""
    if not getattr(iterator, "_workers", None):
        return None
    try:
        stored = sum(1 for task in iterator._task_info.values() if len(task) == 2)
        return int(iterator._data_queue.qsize()) + stored
    except (AttributeError, NotImplementedError, OSError, RuntimeError):
        return None


def ddp(model: Any) -> Facts:
    """The settings of a DistributedDataParallel module and the size of its gradients."""
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    return {
        "parameters": sum(p.numel() for p in parameters),
        "gradient_bytes": sum(p.numel() * p.element_size() for p in parameters),
        "buffer_bytes": sum(b.numel() * b.element_size() for b in model.module.buffers()),
        "buckets": None,
        "comm_hook": None,
        **ddp_settings(model),
    }


def ddp_settings(model: Any) -> Facts:
    """The settings alone: what a script may still change, and cheap to read."""
    return {
        "bucket_cap_bytes": getattr(model, "bucket_bytes_cap", None),
        "gradient_as_bucket_view": bool(getattr(model, "gradient_as_bucket_view", False)),
        "broadcast_buffers": bool(getattr(model, "broadcast_buffers", False)),
        "find_unused_parameters": bool(getattr(model, "find_unused_parameters", False)),
        "static_graph": bool(getattr(model, "static_graph", False)),
    }


def reduced(model: Any) -> Facts:
    """What DDP's reducer tells of itself, once it has rebuilt its buckets.

    Returns:
        buckets (their sizes in bytes) and comm_hook (the name of one that the script registered),
        each None where not told.
    """
    try:
        data = model._get_ddp_logging_data()
    except (AttributeError, RuntimeError):
        return {}
    text = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    try:
        sizes = [int(part) for part in str(text).replace(" ", "").split(",") if part] or None
    except ValueError:
        sizes = None
    return {"buckets": sizes, "comm_hook": str(data.get("comm_hook") or "") or None}


_OTHER_MEANS = ("horovod", "mpi4py", "byteps", "smdistributed")
"""Packages by which ranks may talk without torch.distributed."""


def collectives(torch: Any) -> Optional[int]:
    """How many collective operations this rank has begun, in all its groups.

    Returns:
        None where it may talk to others by other means, or where torch does not say.
    """
    if any(name in sys.modules for name in _OTHER_MEANS):
        return None
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0
    try:
        if distributed.rpc.is_available() and distributed.rpc._is_current_rpc_agent_set():
            return None
        world = distributed.distributed_c10d._world
        return sum(int(group._get_sequence_number_for_group()) for group in world.pg_map)
    except (AttributeError, RuntimeError):
        return None


def optimizer(instance: Any) -> Facts:
    """An optimizer's class and how it applies its updates."""
    groups = getattr(instance, "param_groups", None) or [{}]
    return {
        "optimizer": type(instance).__name__,
        "foreach": groups[0].get("foreach"),
        "fused": groups[0].get("fused"),
        "parameter_groups": len(groups),
    }
