"""In which precision a step computes, and what is compiled: from its graph and torch's switches.

Nothing here imports what the script has not, and nothing warns: the switches have had several
names, of which reading an old one beside a new one raises.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Set

_MOST_NODES = 256
"""Nodes of a graph that are looked at: from the loss backwards, the last layers."""

_ENOUGH = 6
"""Matrix products after which more of them would tell nothing new."""

_PRODUCTS = ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution", "ScaledDot", "Linear", "CudnnRnn")
_COMPILED = "CompiledFunctionBackward"
_HALF = ("bfloat16", "float16")


class Graph(NamedTuple):
    """What the last nodes of a graph tell.

    Attributes:
        products: dtypes of the matrix products and convolutions; None where none was seen.
        parameters: dtypes of the parameters.
        compiled: whether a part of it is a compiled function.
    """

    products: Optional[List[str]]
    parameters: List[str]
    compiled: bool


def graph(root: Any) -> Graph:
    """Look at the graph behind a loss. Its saved tensors are left alone: reading one may compute.

    Args:
        root: the tensor that a backward pass starts from, or None.
    """
    products: Set[str] = set()
    parameters: Set[str] = set()
    compiled, found = False, 0
    first = getattr(root, "grad_fn", None)
    todo: Deque[Any] = deque([first] if first is not None else [])
    seen: Set[Any] = set(todo)
    looked_at = 0
    while todo and looked_at < _MOST_NODES and found < _ENOUGH:
        node = todo.popleft()
        looked_at += 1
        name = node.name()
        if name.endswith("AccumulateGrad"):
            parameters.add(_name(node.variable.dtype))
        elif name == _COMPILED:
            compiled = True
            # What a compiled function returns may have been turned back into float32.
            products.update(_dtypes(node).intersection(_HALF))
        elif name.startswith(_PRODUCTS):
            products |= _dtypes(node)
            found += 1
        following = [after for after, _ in node.next_functions if after is not None]
        todo.extend(after for after in following if after not in seen)
        seen.update(following)
    return Graph(sorted(products) or None, sorted(parameters), compiled)


def _dtypes(node: Any) -> Set[str]:
    return {_name(made.dtype) for made in getattr(node, "_input_metadata", None) or ()}


def _name(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def precision(torch: Any, told: Graph) -> Dict[str, Any]:
    """The facts of the precision that is computed in.

    Args:
        torch: the module.
        told: what the graph of a loss tells.
    """
    half = [name for name in told.products or () if name in _HALF]
    autocast: Any = None
    if told.products is not None and told.parameters:
        autocast = half[0] if half and "float32" in told.parameters else False
    backends = torch.backends
    return {
        "matmul_dtypes": told.products,
        "parameter_dtypes": told.parameters or None,
        "autocast": autocast,
        "float32_matmul_precision": _read(torch.get_float32_matmul_precision),
        "matmul_tf32": _tf32(torch, "cuda", "matmul", backends.cuda.matmul),
        "cudnn_tf32": _tf32(torch, "cuda", "conv", backends.cudnn),
        "cudnn_benchmark": _read(lambda: bool(backends.cudnn.benchmark)),
        "deterministic": _read(torch.are_deterministic_algorithms_enabled),
    }


def _tf32(torch: Any, backend: str, what: str, legacy: Any) -> Any:
    """Whether float32 may run on tensor cores: by the newer switch, where there is one."""
    newer = getattr(torch._C, "_get_fp32_precision_getter", None)
    if newer is not None:
        return _read(lambda: newer(backend, what) == "tf32")
    return _read(lambda: bool(legacy.allow_tf32))


def _read(switch: Any) -> Any:
    """What a switch says, or None where torch will not tell."""
    try:
        return switch()
    except (AttributeError, RuntimeError):
        return None


def compiled(told: Graph, models: List[Any]) -> Dict[str, Any]:
    """The facts of what is compiled; to be called from within a backward pass's beginning.

    Args:
        told: what the graph of a loss tells.
        models: the DDP models.
    """
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    frames, stats = counters.get("frames", {}), counters.get("stats", {})
    breaks = counters.get("graph_break", {})
    return {
        "model": told.compiled or any(_is_compiled(model) for model in models),
        "step": _called_by_compiled_code(),
        "frames": frames.get("ok", 0),
        "graphs": stats.get("unique_graphs", 0),
        "graph_breaks": sum(breaks.values()),
    }


def _is_compiled(model: Any) -> bool:
    """Whether a DDP model, or the module that it wraps, was given to ``torch.compile``."""
    for module in (model, model.module):
        if vars(module).get("_compiled_call_impl") is not None:
            return True
        if type(module).__name__ == "OptimizedModule":
            return True
    return False


def _called_by_compiled_code() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("_dynamo/eval_frame.py"):
            return True
        frame = frame.f_back
    return False
