"""Learning that a script has imported torch. Loads nothing: it is there before the script is."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is a module that plain Python would not have loaded yet
    from types import ModuleType
    from typing import Any, Callable


def arm_on_import(arm: Callable[[ModuleType], None]) -> None:
    """Call ``arm(torch)`` as soon as the script's own ``import torch`` is through.

    torch is never imported before the script does it: what the script sets up before that import
    must hold.
    """
    sys.meta_path.insert(0, _TorchFinder(arm))


class _TorchFinder:
    """Finds torch like everybody else, and learns when it has been loaded.

    It stays until then: a script may look whether torch is there before it imports it.
    """

    def __init__(self, arm: Callable[[ModuleType], None]) -> None:
        self._arm = arm

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of torch from the finders that come after, which tells when it is through."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if spec.origin is not None:  # a mere folder of that name has none
                    _tell_when_loaded(spec, self._loaded)
                return spec
        return None

    def _loaded(self) -> None:
        module = sys.modules.get("torch")
        if module is not None and self in sys.meta_path:
            sys.meta_path.remove(self)
            self._arm(module)


def _tell_when_loaded(spec: Any, tell: Callable[[], None]) -> None:
    """Call `tell` when the module of a spec has been loaded, or could not be.

    importlib marks a spec for as long as its module is being loaded. A loader that wraps the real
    one would stand in every traceback that an import of torch ends in.
    """
    plain = type(spec)

    def get(self: Any) -> bool:
        return bool(self.__dict__.get("_loading"))

    def put(self: Any, loading: bool) -> None:
        if loading:
            self.__dict__["_loading"] = True
            return
        self.__dict__.pop("_loading", None)
        self.__class__ = plain
        self._initializing = False
        tell()

    try:
        members = {"__slots__": (), "_initializing": property(get, put)}
        spec.__class__ = type(plain.__name__, (plain,), members)
    except (AttributeError, TypeError):
        pass  # no spec as importlib makes them: torch trains without the probe
