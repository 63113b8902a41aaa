"""Confluent's frame before a value, and the schemas its ids refer to.

    | 0 | schema id: 4 bytes, big-endian | Protobuf: message indexes | value |

The message indexes are zigzag varints: their number, then each; a single 0 stands for [0].
Source: Confluent's wire format, https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

import json
import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from smq.model.named_files import read_named

MAGIC = 0
HEAD = struct.Struct(">bI")
ANSWER_SECONDS_MAX = 30
SCHEMA_BYTES_MAX = 16 * 1024 * 1024
SCHEMAS_KEPT = 1000
VARINT_BYTES_MAX = 10
INDEXES_MAX = 64


class SameServer(HTTPRedirectHandler):
    """Follows a redirect on the registry's own host, and never out of https."""

    def redirect_request(self, req: Request, *given: Any) -> Request | None:  # noqa: ANN401  (its base's)
        """The next request. Raises HTTPError."""
        body, code, message, headers, target = given
        asked, named = urlsplit(req.full_url), urlsplit(target)
        is_weaker = asked.scheme == "https" and named.scheme != "https"
        if named.hostname != asked.hostname or is_weaker:
            words = f"{message}; it leads to {named.scheme}://{named.netloc}, which is not asked"
            raise HTTPError(req.full_url, code, words, headers, body)
        return super().redirect_request(req, *given)


_opener = build_opener(SameServer)


class Misfit(ValueError):
    """A value that does not match the schema; the message is the reason."""


def unframed(value: bytes) -> tuple[int, bytes]:
    """The schema id and the rest. Raises Misfit."""
    if len(value) < HEAD.size or value[0] != MAGIC:
        raise Misfit("no schema id before the value")
    return HEAD.unpack_from(value)[1], value[HEAD.size :]


def after_indexes(value: bytes) -> bytes:
    """The bytes after the message indexes. Raises Misfit."""
    count, place = _varint(value, 0)
    if not 0 <= count <= INDEXES_MAX:
        raise Misfit(f"{count} message indexes before the value")
    for _ in range(count):
        _, place = _varint(value, place)
    return value[place:]


def _varint(value: bytes, place: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(value[place : place + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place + index + 1
    raise Misfit("the message indexes before the value are cut")


@lru_cache(SCHEMAS_KEPT)
def schema_of(registry: str, number: int) -> str:
    """A schema by its id, from a registry's address or a directory with <id>.avsc.

    Raises Misfit if the id is unknown; OSError if the registry does not answer.
    """
    if not re.match(r"https?://", registry):
        try:
            return read_named(Path(registry) / f"{number}.avsc", SCHEMA_BYTES_MAX).decode()
        except FileNotFoundError:
            raise Misfit(f"{registry} has no schema {number}") from None
    address = f"{registry.rstrip('/')}/schemas/ids/{number}"
    try:
        asked = Request(address, headers={"Accept": "application/json"})  # noqa: S310  (http only)
        with _opener.open(asked, timeout=ANSWER_SECONDS_MAX) as answer:
            return str(json.loads(answer.read(SCHEMA_BYTES_MAX))["schema"])
    except HTTPError as error:
        if error.code == 404:
            raise Misfit(f"{registry} has no schema {number}") from None
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"{address} gave no schema: {error}") from error
