"""What keeps the probe out of ``torch.compile``: neither traced nor compiled nor seen.

Dynamo compiles every Python function that runs beside a compiled one, and inlines every one that a
compiled function calls. Without this the probe would cost its job graphs, and itself seconds.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, Iterator, List, Set


def tracing(torch: Any) -> Callable[[], bool]:
    """A function that is true where Dynamo traces it, and cheap where Python runs it."""
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        if hasattr(compiler, name):
            return getattr(compiler, name)  # type: ignore[no-any-return]
    return lambda: False


def leave_alone(torch: Any, package: str, entries: List[types.CodeType]) -> None:
    """Have Dynamo run the functions of a package as they are. It is not imported for that.

    Args:
        torch: the module.
        package: whose modules have been imported.
        entries: the code of functions below which none but the probe's functions run: there Dynamo
            is to look at nothing at all.
    """
    dynamo: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    codes: Set[types.CodeType] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(package + "."):
            codes.update(_codes(vars(module).values(), name))
    if hasattr(dynamo, "set_code_exec_strategy"):  # torch 2.7 and later
        skip, default = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
        for code in codes:
            below = skip if code in entries else default
            dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(skip, below))
    elif hasattr(dynamo, "skip_code"):
        for code in codes:
            dynamo.skip_code(code)


def _codes(values: Any, module: str) -> Iterator[types.CodeType]:
    """The code of a module's functions, its classes' methods, and all that they define."""
    for value in list(values):
        if getattr(value, "__module__", module) != module:
            continue
        if isinstance(value, type):
            yield from _codes(vars(value).values(), module)
        function: Any = getattr(value, "fget", None) or getattr(value, "__func__", value)
        while function is not None:
            code = getattr(function, "__code__", None)
            if code is not None:
                yield from _nested(code)
            function = getattr(function, "__wrapped__", None)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)
