"""The filer's pages: a folder, a file, and the records that refer to a payload."""

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smq.filer.store import KEY_BYTES_MAX, Facts, Store, checked_key
from smq.front.console.console import Console, page_of
from smq.front.console.desk import ShownReference
from smq.front.console.sight import allowed
from smq.front.files import check_list
from smq.front.rights import check_topic, resource_of, rights_of
from smq.model.errors import StoreError
from smq.security.acls import Operation, ResourceType

ROWS_A_PAGE = 100  # Each row that is a folder costs a list request.
BEHIND = "/\U0010ffff"  # Appended to a folder's name: sorts after everything in it.
_SEGMENT = re.compile(
    r"topics/kafka/(?P<topic>[^/]+)/partition=(?P<partition>\d{1,10})"
    r"/(?P<base>\d{20})-(?P<end>\d{1,20})-[^/]*"
)
_PAYLOAD = re.compile(r"payloads/[^/]+/[^/]+/(?P<id>[^/]+)")


class FileRow(NamedTuple):
    """A folder (`facts` is None) or a file."""

    name: str
    key: str
    facts: Facts | None


class Listing(NamedTuple):
    """A part of a folder. `after` continues the list; "" at the end."""

    rows: list[FileRow]
    after: str


class SegmentFile(NamedTuple):
    """A sealed segment from its file's name: the offsets in [base, end)."""

    topic: str
    partition: int
    base: int
    end: int


def file_routes(console: Console) -> list[Route]:
    """The routes."""

    async def _references(request: Request, payload: str) -> list[ShownReference]:
        found = await console.ask(request, console.desk(request).references, payload)
        named = (each.topic for each in found)
        choose = rights_of(request).choice(Operation.READ, ResourceType.TOPIC)
        topics = await console.made(request, allowed, choose, named)
        return [each for each in found if each.topic in topics]

    async def folder(request: Request) -> Response:
        prefix, after = (_key(request, name) for name in ("in", "after"))
        await check_list(request, prefix, console.made)
        found = await console.ask(request, listing, console.store, prefix, after)
        more = f"?{urlencode({'in': prefix, 'after': found.after})}" if found.after else ""
        where = {"crumbs": list(crumbs(prefix)), "rows": found.rows, "is_first": not after}
        values = {"title": "Files", "here": "/files", "more": more, **where}
        return await console.made(request, page_of, request, "files.html", values)

    async def one(request: Request) -> Response:
        key = _key(request, "key")
        try:
            checked_key(key)
        except StoreError as reason:
            raise ValueError(str(reason)) from reason
        check_topic(request, Operation.READ, resource_of(key))
        facts = await console.ask(request, console.store.head, key)
        payload = _PAYLOAD.fullmatch(key)
        named_by = await _references(request, payload["id"]) if payload else []
        folder_key, slash, name = key.rpartition("/")
        values = {
            "title": name,
            "here": "/files",
            "facts": facts,
            "crumbs": list(crumbs(folder_key + slash)),
            "segment": segment_of(key),
            "is_payload": payload is not None,
            "named_by": named_by,
        }
        return await console.made(request, page_of, request, "file.html", values)

    return [console.page("/files", folder), console.search("/files/one", one)]


def _key(request: Request, name: str) -> str:
    key = request.query_params.get(name, "")
    if len(key.encode()) > KEY_BYTES_MAX + len(BEHIND.encode()):
        raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes")
    return key


def listing(store: Store, prefix: str, after: str) -> Listing:
    """The folders and files directly below `prefix` ("" or ending with a slash)."""
    rows: list[FileRow] = []
    at: str | None = after
    while at is not None:
        found, at = _listed(store, prefix, at, rows)
        if not found:
            return Listing(rows, "")
        if len(rows) >= ROWS_A_PAGE:
            return Listing(rows, at or rows[-1].key)
    return Listing(rows, "")


def _listed(store: Store, prefix: str, after: str, rows: list[FileRow]) -> tuple[bool, str | None]:
    """Add files up to and with the next folder; whether any exist, and where to continue."""
    is_any = False
    for facts in store.list(prefix, after):
        is_any = True
        name, slash, _ = facts.key[len(prefix) :].partition("/")
        if slash:
            rows.append(FileRow(name, f"{prefix}{name}/", None))
            return True, f"{prefix}{name}{BEHIND}"
        rows.append(FileRow(name, facts.key, facts))
        if len(rows) >= ROWS_A_PAGE:
            return True, facts.key
    return is_any, None


def crumbs(prefix: str) -> Iterator[tuple[str, str]]:
    """The parent folders of `prefix`: names and keys."""
    parts = prefix.split("/")[:-1]
    for count, name in enumerate(parts, 1):
        yield name, "/".join(parts[:count]) + "/"


def segment_of(key: str) -> SegmentFile | None:
    """Parse a sealed segment's key; None for other keys."""
    found = _SEGMENT.fullmatch(key)
    if found is None:
        return None
    return SegmentFile(
        found["topic"], int(found["partition"]), int(found["base"]), int(found["end"])
    )
