"""A topic's records: list, search, view, download, produce."""

import json
from base64 import b64encode
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from smq.front.console.console import Console, lines_of, page_of, told
from smq.front.console.desk import (
    HEADERS_MAX as SHOWN_HEADERS_MAX,
    NEWEST,
    Desk,
    FoundRecords,
    NewRecord,
    PassedOver,
    ShownRecord,
    Wanted,
)
from smq.front.console.paging import whole
from smq.front.console.sight import check
from smq.front.console.text import DECODED_KINDS, kind_of, pretty, shown
from smq.front.downloads import Busy
from smq.front.turns import standing_of
from smq.model.errors import NotFound
from smq.model.references import NotAHandle, Reference
from smq.security.acls import Operation, ResourceType

LIMIT, LIMIT_MAX = 50, 500  # Records per page.
PARTITION_MAX = 2**31 - 1
HEADERS_MAX = 1000  # Lines.
CURSOR_MAX = 200  # Entries: more than our own links ever have.
LISTED_BYTES = 512  # Of a key and of a value in a list's row.
RETRY_AFTER_S = 5
OCTETS = "application/octet-stream"
SMALL_BYTES = 1 << 20  # A download that keeps no more needs no place: requests are bounded.
OBJECT_BYTES = 256  # Of a record or a header, beside its bytes.
PIECE_BYTES = 1 << 18  # Of a download, made at a time: all its lines may be hundreds of megabytes.


def message_routes(console: Console) -> list[Route]:
    """The routes."""

    async def messages(request: Request) -> Response:
        wanted = wanted_of(request.path_params["topic"], request.query_params)
        check(request, Operation.READ, ResourceType.TOPIC, wanted.topic)
        found = await console.ask(request, _list, request, console.desk(request), wanted)
        if isinstance(found, Response):
            return found
        kept_bytes, pieces = found
        return _Download(console, request, f"{wanted.topic}.ndjson", pieces, kept_bytes)

    async def record(request: Request) -> Response:
        seen = await _record_of(console, request)
        decoded = await _decoded(console, request, seen)
        return await console.ask(request, _page_of_record, request, seen, decoded)

    async def value(request: Request) -> Response:
        seen = await _record_of(console, request)
        if part := _part(seen):
            raise ValueError(part)
        name, data = f"{seen.topic}-{seen.partition}-{seen.offset}.bin", seen.value or b""
        pieces = (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))
        answer = _Download(console, request, name, pieces, len(data))
        answer.headers["content-length"] = str(len(data))
        return answer

    async def produce(request: Request) -> Response:
        topic = request.path_params["topic"]
        check(request, Operation.WRITE, ResourceType.TOPIC, topic)
        made = new_record(topic, await console.long_form(request))
        partition, offset = await console.ask(request, console.desk(request).produce, made)
        return told(f"Appended to partition {partition} at offset {offset}.")

    path = "/topics/{topic}/messages"
    return [
        console.search(path, messages),
        console.search(path + "/{partition}/{offset}", record),
        console.search(path + "/{partition}/{offset}/value", value),
        console.action(path, produce),
    ]


def wanted_of(topic: str, query: Mapping[str, str]) -> Wanted:
    """Parse a search from a request. Raises ValueError."""
    partition = query.get("partition", "").strip()
    return Wanted(
        topic=topic,
        partition=whole(partition, "the partition", 0, PARTITION_MAX) if partition else None,
        start=query.get("start", "").strip() or NEWEST,
        until=query.get("until", "").strip(),
        key=query.get("key", ""),
        header=query.get("header", ""),
        text=query.get("text", ""),
        limit=whole(query.get("limit") or str(LIMIT), "the number of records", 1, LIMIT_MAX),
        cursor=_cursor_of(query.get("cursor", "")),
    )


def _cursor_of(text: str) -> dict[int, int]:
    pairs = [each.partition(".") for each in text.split("-") if each]
    if len(pairs) > CURSOR_MAX:
        raise ValueError("the place to continue from is not valid")
    return {
        whole(partition, "a partition", 0, PARTITION_MAX): whole(offset, "an offset")
        for partition, _, offset in pairs
    }


def new_record(topic: str, form: Mapping[str, str]) -> NewRecord:
    """Parse a record from a form. Raises ValueError."""
    partition = form.get("partition", "").strip()
    lines = lines_of(form.get("headers", ""), HEADERS_MAX, "headers")
    headers = [line.partition("=") for line in lines if line.strip()]
    if any(not name.strip() or not sign for name, sign, _ in headers):
        raise ValueError("a header is a line name=value")
    return NewRecord(
        topic,
        whole(partition, "the partition", 0, PARTITION_MAX) if partition else None,
        form["key"].encode() if form.get("key") else None,
        None if form.get("null") else form.get("value", "").encode(),
        tuple((name.strip(), value.encode()) for name, _, value in headers),
    )


class _Download(StreamingResponse):
    """Sends a file in pieces, each when the client has read most of the former. One that keeps much
    waits for a place first, and is refused if it gets none; who loses it to another sees that the
    file is not whole."""

    def __init__(
        self,
        console: Console,
        request: Request,
        name: str,
        pieces: Generator[bytes],
        kept_bytes: int,
    ) -> None:
        # Safe in a header: topic names have only letters, digits and ._- characters.
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        super().__init__(console.in_turns(request, pieces), 200, headers, OCTETS)
        self._console, self._request = console, request
        self._is_long = kept_bytes > SMALL_BYTES
        self._pieces = pieces
        self._is_lost = False  # Its place.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            # What is cancelled refers to itself, perhaps for minutes: its records go now.
            self._pieces.close()
        cut = standing_of(scope).cut
        if self._is_lost and cut is not None:
            cut()  # Else the server would report an answer without an end as our error.
            await self.listen_for_disconnect(receive)

    async def stream_response(self, send: Send) -> None:
        """Send it, once it has a place. A client that leaves is noticed meanwhile."""
        if not self._is_long:
            await super().stream_response(send)
            return
        try:
            async with self._console.place(self._request) as place:

                async def sent(message: Message) -> None:
                    await send(message)
                    place.sent(len(message.get("body", b"")))

                await super().stream_response(sent)
        except Busy:
            await self._refuse(send)
        except TimeoutError:
            self._is_lost = True

    async def _refuse(self, send: Send) -> None:
        self._pieces.close()
        sentence = "Others download as much as the broker sends at once; try again soon."
        values = {"title": "This did not work", "sentence": sentence, "here": ""}
        answer = page_of(self._request, "failed.html", values, 503)
        answer.headers["retry-after"] = str(RETRY_AFTER_S)
        await send({"type": "http.response.start", "status": 503, "headers": answer.raw_headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})


def _list(request: Request, desk: Desk, wanted: Wanted) -> Response | tuple[int, Generator[bytes]]:
    """Search, and make the page, whose rows take long, too; or what makes the download, and the
    bytes that it keeps meanwhile."""
    found = desk.read(wanted)
    if request.query_params.get("as") == "ndjson":
        return sum(map(_kept_bytes, found.records)), _pieces(wanted, found)
    return page_of(request, "messages.html", _values(wanted, found, request.query_params))


def _values(wanted: Wanted, found: FoundRecords, query: Mapping[str, str]) -> dict[str, Any]:
    cursor = "-".join(f"{name}.{offset}" for name, offset in sorted(found.cursor.items()))
    here = {name: text for name, text in query.items() if name != "cursor"}
    return {
        "title": f"Messages of {wanted.topic}",
        "here": "/topics",
        "topic": wanted.topic,
        "wanted": wanted,
        "found": found,
        "headers_max": SHOWN_HEADERS_MAX,
        "rows": [_row(each) for each in found.records],
        "more": f"?{urlencode({**here, 'cursor': cursor})}" if cursor else None,
        "ndjson": f"?{urlencode({**query, 'as': 'ndjson', 'limit': LIMIT_MAX})}",
    }


def _row(seen: ShownRecord) -> dict[str, Any]:
    key = None if seen.key is None else seen.key[:LISTED_BYTES]
    value = None if seen.value is None else seen.value[:LISTED_BYTES]
    return {
        "seen": seen,
        "key": shown(key, seen.key_bytes),
        "value": shown(value, seen.value_bytes, seen.headers),
    }


def _headers(seen: ShownRecord) -> list[tuple[str, Any]]:
    return [
        (name, shown(value, 0 if value is None else len(value))) for name, value in seen.headers
    ]


async def _record_of(console: Console, request: Request) -> ShownRecord:
    where = request.path_params
    topic = where["topic"]
    check(request, Operation.READ, ResourceType.TOPIC, topic)
    partition = whole(where["partition"], "a partition", most=PARTITION_MAX)
    offset = whole(where["offset"], "an offset")
    seen = await console.ask(request, console.desk(request).record, topic, partition, offset)
    if seen is None:
        raise NotFound(f"{topic} {partition}:{offset}", "there is no record with this offset")
    return seen


async def _decoded(console: Console, request: Request, seen: ShownRecord) -> dict[str, Any]:
    """The rows of a value in a format that has some."""
    kind = kind_of(seen.value, seen.headers) if seen.value else ""
    if kind not in DECODED_KINDS:
        return {}
    return await console.ask(request, console.decode, kind, seen.value)


def _page_of_record(request: Request, seen: ShownRecord, decoded: dict[str, Any]) -> Response:
    """A record's page or a part of it: in a thread, as its text may be long."""
    text = pretty(seen.value, seen.value_bytes, seen.headers)
    reference = None
    if text.kind == "reference":
        try:
            reference = Reference.of_handle(seen.value)
        except NotAHandle as reason:
            decoded = {"error": f"its header says that it refers to a payload, but {reason}"}
    values = {
        "title": f"{seen.topic} {seen.partition}:{seen.offset}",
        "here": "/topics",
        "seen": seen,
        "key": shown(seen.key, seen.key_bytes),
        "value": text,
        "headers": _headers(seen),
        "decoded": decoded,
        "reference": reference,
        "part": _part(seen),
    }
    name = "record_part.html" if request.query_params.get("part") else "record.html"
    return page_of(request, name, values)


def _part(seen: ShownRecord) -> str:
    """Why a record's value is not downloaded; "": it is."""
    length = len(seen.value or b"")
    if length >= seen.value_bytes:
        return ""
    return (
        f"The value has {seen.value_bytes} bytes, of which this page reads {length}; read it with "
        "`smq consume`."
    )


def _pieces(wanted: Wanted, found: FoundRecords) -> Generator[bytes]:
    """The lines of a download, some at a time. Those that name batches which were passed over come
    last: `smq import` takes the first line for one of a record."""
    piece = bytearray()
    for seen in found.records:
        piece += _line(seen)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"".join(_line_beyond(wanted.topic, each) for each in found.beyond)


def _kept_bytes(seen: ShownRecord) -> int:
    """What a record takes of memory, about."""
    data = len(seen.key or b"") + len(seen.value or b"")
    headers = sum(OBJECT_BYTES + len(name) + len(value or b"") for name, value in seen.headers)
    return OBJECT_BYTES + data + headers


def _line_beyond(topic: str, passed: PassedOver) -> bytes:
    """A line without a value, which `smq produce --json-lines` and `smq import` refuse."""
    offsets = {"start": passed.base, "end": passed.end}
    fields = {"topic": topic, "partition": passed.partition, "passed_over": offsets}
    return json.dumps(fields).encode() + b"\n"


def _line(seen: ShownRecord) -> bytes:
    """A line of JSON, as `smq consume --json` prints it; more fields say what is cut."""
    fields = {
        "topic": seen.topic,
        "partition": seen.partition,
        "offset": seen.offset,
        "timestamp": seen.timestamp_ms,
        "key": _json_of(seen.key),
        "value": _json_of(seen.value),
        "headers": [
            [_json_of(name.encode(errors="surrogateescape")), _json_of(value)]
            for name, value in seen.headers
        ],
    }
    if len(seen.key or b"") < seen.key_bytes:
        fields["key_bytes"] = seen.key_bytes
    if len(seen.value or b"") < seen.value_bytes:
        fields["value_bytes"] = seen.value_bytes
    if seen.are_headers_cut:
        fields["headers_cut"] = True
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _json_of(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        return {"base64": b64encode(data).decode()}
