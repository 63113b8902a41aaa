"""Random messages of Kafka's protocol, from the table that the codecs are generated from."""

import importlib
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from smq.model.errors import ErrorCode
from smq.wire.codec import Message
from smq.wire.messages.notation import Api, Field, in_newer_places
from smq.wire.messages.tables import APIS
from smq.wire.structure_code import snake

if TYPE_CHECKING:
    from collections.abc import Callable

ARRAY_LENGTH_MAX = 3
TIME_MS_MAX = 2**41  # The year 2039: what libraries with clever types for time still take.
TEXTS = ("", "a", "topic-1", "Zürich 🚲", "x" * 126, "y" * 127, "z" * 300)
_INTEGER_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}

MESSAGES: tuple[tuple[Api, str], ...] = tuple((api, name) for api in APIS for name in api.messages)


def codec_module(api: Api) -> Any:  # noqa: ANN401  (one of many modules of one shape)
    """The generated module of an API."""
    return importlib.import_module(f"smq.wire.generated.{snake(api.name)}")


def random_message(random: Random, api: Api, name: str, version: int) -> Message:
    """A message with something in every field that the version has."""
    return _random_structure(random, codec_module(api), name, api.messages[name].fields, version)


def _random_structure(
    random: Random,
    module: Any,  # noqa: ANN401
    name: str,
    fields: list[Field],
    version: int,
) -> Message:
    values = {
        field.name: _random_value(random, module, field, version)
        for field in in_newer_places(fields, version)
    }
    message = getattr(module, name)(**values)
    assert isinstance(message, Message)
    return message


def _random_value(random: Random, module: Any, field: Field, version: int) -> object:  # noqa: ANN401
    if version in field.nullable and random.random() < 0.2:
        return None
    if field.is_array:
        length = 1 if field.is_single else random.randint(0, ARRAY_LENGTH_MAX)
        return [_random_element(random, module, field, version) for _ in range(length)]
    value = _random_element(random, module, field, version)
    if field.tag is not None and isinstance(value, Message) and value == type(value)():
        return None  # The default structure: None stands for it, and it is never written.
    return value


def _random_element(random: Random, module: Any, field: Field, version: int) -> object:  # noqa: ANN401
    if field.type in _INTEGER_BITS:
        return _random_integer(random, field)
    chosen: dict[str, Callable[[], object]] = {
        "bool": lambda: random.random() < 0.5,
        "float64": lambda: random.choice((0.0, -1.5, 1e300)),
        "string": lambda: random.choice(TEXTS),
        "bytes": lambda: random.randbytes(random.choice((0, 1, 127, 200))),
        "records": lambda: random.randbytes(random.choice((0, 1, 127, 200))),
        "uuid": lambda: UUID(bytes=random.randbytes(16)),
    }
    if field.type in chosen:
        return chosen[field.type]()
    return _random_structure(random, module, field.type, field.fields, version)


def _random_integer(random: Random, field: Field) -> int:
    if field.name.endswith("error_code"):
        return random.choice(tuple(ErrorCode)).value
    if field.type == "int64" and field.name.endswith(("_ms", "timestamp")):
        return random.randrange(TIME_MS_MAX)
    bits = random.choice((2, _INTEGER_BITS[field.type]))
    if field.type.startswith("u"):
        return random.randrange(2**bits)
    return random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))
