"""Numba and llvmlite, imported when a kernel is compiled: who has linked kernels never needs them.

`MadeLater` stands in a kernel's globals for what Numba makes: an intrinsic, a function of C.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any


class LaterModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


ir: Any = LaterModule("llvmlite.ir")
types: Any = LaterModule("numba.core.types")
cgutils: Any = LaterModule("numba.core.cgutils")
arrayobj: Any = LaterModule("numba.np.arrayobj")
_extending: Any = LaterModule("numba.extending")
_registry: Any = LaterModule("numba.core.registry")


class MadeLater:
    """What `make(*arguments)` returns, made when Numba meets this in a kernel that it compiles."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._given = make, *arguments
        self.made = cache(partial(make, *arguments))
        self._type = cache(self._resolve)

    def _resolve(self) -> Any:
        made, context = self.made(), _registry.cpu_target.typing_context
        context.refresh()
        return context.resolve_value_type(made)

    @property
    def _numba_type_(self) -> Any:
        return self._type()

    def __reduce__(self) -> Any:
        """Numba's cache pickles what a kernel's closure has."""
        return MadeLater, self._given


def intrinsic(function: Callable[..., Any]) -> Any:
    """See numba.extending.intrinsic."""
    return MadeLater(_intrinsic, function)


def _intrinsic(function: Callable[..., Any]) -> Any:
    return _extending.intrinsic(function)


def external(symbol: str, result: str, *arguments: str) -> Any:
    """A function of the C library; types are Numba's names."""
    return MadeLater(_external, symbol, result, *arguments)


def _external(symbol: str, result: str, *arguments: str) -> Any:
    signature = getattr(types, result)(*(getattr(types, each) for each in arguments))
    return types.ExternalFunction(symbol, signature)
