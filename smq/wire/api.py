"""What a row of the registry of APIs is. The registry is `smq.wire.generated.apis`."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from smq.wire.codec import Buffer, Writer

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True)
class WireApi(Generic[Request, Response]):
    """An API's key and versions, the first flexible one, and its codec, which the first use loads.

    module   of the codec, in smq.wire.generated
    """

    key: int
    name: str
    first_version: int
    last_version: int
    flexible_from: int
    module: str

    @property
    def versions(self) -> range:
        return range(self.first_version, self.last_version + 1)

    @cached_property
    def codec(self) -> ModuleType:
        return import_module(f"smq.wire.generated.{self.module}")

    @cached_property
    def read_request(self) -> "Callable[[Buffer, int, int], Request]":
        return cast("Callable[[Buffer, int, int], Request]", self._function("read", "request"))

    @cached_property
    def write_request(self) -> "Callable[[Request, int, Writer], None]":
        return cast("Callable[[Request, int, Writer], None]", self._function("write", "request"))

    @cached_property
    def read_response(self) -> "Callable[[Buffer, int, int], Response]":
        return cast("Callable[[Buffer, int, int], Response]", self._function("read", "response"))

    @cached_property
    def write_response(self) -> "Callable[[Response, int, Writer], None]":
        return cast("Callable[[Response, int, Writer], None]", self._function("write", "response"))

    def _function(self, verb: str, message: str) -> object:
        return getattr(self.codec, f"{verb}_{self.module}_{message}")
