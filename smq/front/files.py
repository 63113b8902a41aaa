"""/filer/<key>: the filer's objects over HTTP, as files.

    GET, HEAD   an object; If-Match, If-None-Match; GET also ranges, If-Range
    GET …/      a list of the objects below, for who may read all that begins so:
                ?prefix= ?after= ?limit=, sorted by key
    PUT         store the body; If-None-Match: * creates only, If-Match replaces that version
    DELETE      remove an object; If-Match, If-None-Match

Clients can read sealed segments (topics/) but not write them. Clients can upload payloads that
match their names, but not replace or delete them: payloads never change, and the broker deletes
those that no record refers to.
"""

from asyncio import Lock
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from json import JSONEncoder
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from smq.filer.store import (
    CONDEMNED,
    CREATE,
    OUTDATED_MS,
    OVERWRITE,
    Facts,
    IfMatch,
    Mode,
    OpenObject,
    Store,
    checked_key,
)
from smq.front.conditions import (
    BadCondition,
    ByteSpan,
    Unsatisfiable,
    combined,
    etag,
    is_another,
    is_unchanged,
    span,
    write_mode,
)
from smq.front.payloads import NotThePayload, Promise
from smq.front.rights import FILES, check_topic, resource_of, rights_of, spans_topics, user_in
from smq.front.space import Space, Upload
from smq.front.streams import InThread, ReadingResponse, body_pieces, drain, in_threads
from smq.front.user_threads import UserThreads
from smq.model.errors import AlreadyExists, NotFound, PreconditionFailed, StoreError, Unavailable
from smq.model.references import PREFIX as PAYLOADS_PREFIX, NotAHandle
from smq.model.segments import SEGMENTS_PREFIX
from smq.security.acls import Operation, ResourceType
from smq.security.rights import Rights

LIST_LIMIT_MAX = 1000  # Objects in one answer: bounds its cost.
THREADS = 40  # That wait for the filer, whose disk or bucket may be slow.
SHARE = 4  # Of these a user has one in as many.
LISTS_AT_ONCE = 2  # Each reads a whole folder for any part of it: a slow one leaves a thread.
DIGITS_MAX = 9  # Of a number: more digits are slow to parse.
PARTS_MAX = 32  # Of a new name. In a directory each costs some milliseconds of the disk.
READ_ATTEMPTS_MAX = 3  # An object may be replaced between the check and the open.
METHODS = ["GET", "HEAD", "PUT", "DELETE"]
_NEEDS = {
    "GET": Operation.READ,
    "HEAD": Operation.READ,
    "PUT": Operation.WRITE,
    "DELETE": Operation.DELETE,
}

InTurn: TypeAlias = Callable[..., Awaitable[Any]]  # (request, work, *arguments), as UserThreads.run


class Files:
    """The handlers; one object for the process."""

    def __init__(self, store: Store, space: Space) -> None:
        self._store, self._space = store, space
        self._lists = UserThreads(LISTS_AT_ONCE)
        self._threads = UserThreads(THREADS, THREADS // SHARE)
        self._locks = WeakValueDictionary[str, Lock]()
        self._handlers = {
            "GET": self._get,
            "HEAD": self._head,
            "PUT": self._put,
            "DELETE": self._delete,
        }

    async def answer(self, request: Request) -> Response:
        """Answer one request. Raises HTTPException, StoreError."""
        key = request.path_params["key"]
        if "\N{REPLACEMENT CHARACTER}" in key:
            raise HTTPException(400, "the path is not UTF-8")
        if request.method in {"GET", "HEAD"} and (not key or key.endswith("/")):
            return await self._list(request, key)
        checked_key(key)
        try:
            check_topic(request, _NEEDS[request.method], resource_of(key))
            return await self._handlers[request.method](request, key)
        except (BadCondition, NotAHandle) as reason:
            await drain(request)
            raise HTTPException(400, str(reason)) from reason
        except NotThePayload as reason:
            await drain(request)
            raise HTTPException(422, f"{key}: {reason}") from reason
        except (StoreError, HTTPException):
            await drain(request)
            raise

    # --- reading ---------------------------------------------------------------------------------

    async def _list(self, request: Request, key: str) -> Response:
        prefix = key + request.query_params.get("prefix", "")
        after = request.query_params.get("after", "")
        limit = _limit(request.query_params.get("limit"))
        await check_list(request, prefix, self._lists.run)

        def listed() -> bytes:
            found = list(islice(self._store.list(prefix, after), limit + 1))
            page = found[:limit]
            answer: dict[str, Any] = {"objects": [_object(each) for each in page], "next": None}
            if len(found) > limit:
                query = {**request.query_params, "after": page[-1].key}
                answer["next"] = f"/filer/{quote(key)}?{urlencode(query)}"
            return _long_json(answer)

        answer = await self._lists.run(request, listed)
        return Response(answer, media_type="application/json")

    async def _head(self, request: Request, key: str) -> Response:
        facts = await self._threads.run(request, self._store.head, key)
        early = _without_a_body(request, facts)
        if early is not None:
            return early
        return Response(None, 200, _headers(facts, None))

    async def _get(self, request: Request, key: str) -> Response:
        run = partial(self._threads.run, request)
        for _ in range(READ_ATTEMPTS_MAX):
            facts: Facts = await run(self._store.head, key)
            early = _without_a_body(request, facts)
            if early is not None:
                return early
            wanted = _span(request, facts)
            start, length = wanted or (0, None)
            closing = self._store.reading(key, start, length)
            reading: OpenObject = await run(closing.__enter__)
            if reading.facts.version == facts.version:
                status = 206 if wanted else 200
                return ReadingResponse(reading, closing, run, status, _headers(facts, wanted))
            await run(closing.__exit__, None, None, None)
        raise Unavailable(key, "the object keeps being replaced")

    # --- writing ---------------------------------------------------------------------------------

    async def _put(self, request: Request, key: str) -> Response:
        _writable(key)
        if key.count("/") >= PARTS_MAX:
            raise HTTPException(400, f"a new name has at most {PARTS_MAX} parts")
        if "content-range" in request.headers:
            raise HTTPException(400, "part of an object cannot be replaced: send the whole object")
        promise = Promise(key) if f"{key}/".startswith(PAYLOADS_PREFIX) else None
        run = partial(self._threads.run, request)
        mode = _mode(request, key, await self._existing(run, key))
        with self._space.upload(key, user_in(request.scope)) as room:
            if not self._space.counted:
                raise Unavailable(key, "usage of the quotas is still being counted")
            room.check(_content_length(request))
            async with AsyncExitStack() as until_told:
                try:
                    async with in_threads(self._store.writing(key, mode), run) as sink:
                        write = partial(run, sink.write)
                        await _receive(request, room, promise, write)
                        await until_told.enter_async_context(self._lock_of(key))
                        existing = await self._existing(run, key)
                except AlreadyExists as reason:
                    raise _taken(request, _why_taken(request, key, reason)) from reason
                room.arrived(existing.length if existing else 0)
                facts = await run(self._store.head, key)
        status = 200 if existing else 201
        return JSONResponse(_object(facts), status, {"etag": etag(facts)})

    async def _delete(self, request: Request, key: str) -> Response:
        _writable(key)
        if key.startswith(PAYLOADS_PREFIX):
            raise HTTPException(403, "the broker deletes payloads, once no record refers to them")
        run = partial(self._threads.run, request)
        async with self._lock_of(key):
            facts: Facts = await run(self._store.head, key)
            headers = _combined(request)
            if is_another(headers, facts) or is_unchanged(headers, facts):
                raise PreconditionFailed(key, "its version does not meet the condition")
            await run(self._store.delete, key)
            self._space.removed(key, facts.length)
        return Response(None, 204)

    def _lock_of(self, key: str) -> Lock:
        """Holds a key's lock from before a write until its outcome is known."""
        return self._locks.setdefault(key, Lock())

    async def _existing(self, run: InThread, key: str) -> Facts | None:
        try:
            facts: Facts = await run(self._store.head, key)
        except NotFound:
            return None
        return facts


async def check_list(request: Request, prefix: str, in_turn: InTurn) -> None:
    """Raises HTTPException unless who asks may read all that begins so. Walks rules `in_turn`.

    A list that left out what he may not read would tell of it all the same: `next` and the time
    that it takes depend on it.
    """
    rights, resource = rights_of(request), resource_of(prefix)
    if spans_topics(prefix):
        if not rights.is_unlimited:
            _note_denied_list(rights, prefix)
            raise HTTPException(403, "only super users list the files of several topics at once")
    elif not resource.startswith(FILES):
        check_topic(request, Operation.READ, resource)
    elif not await in_turn(request, rights.all_topics(Operation.READ), resource):
        _note_denied_list(rights, resource)
        sentence = f"this needs READ on all topics that begin with {resource}"
        raise HTTPException(403, f"{sentence}, and no rule that denies one of them")


def _note_denied_list(rights: Rights, prefix: str) -> None:
    reads, kind = Operation.READ.name, ResourceType.TOPIC.name
    rights.audit.denied(rights.peer, rights.api, reads, kind, f"{prefix}*")


async def _receive(
    request: Request, room: Upload, promise: Promise | None, write: InThread
) -> None:
    """Write the body. Raises NotThePayload, Full."""
    async for piece in body_pieces(request):
        room.take(len(piece))
        if promise is not None:
            promise.take(piece)
        await write(piece)
    if promise is not None:
        promise.check()


def _writable(key: str) -> None:
    if f"{key}/".startswith(SEGMENTS_PREFIX):
        raise HTTPException(403, "only the broker writes sealed segments")
    is_payload = key.startswith(PAYLOADS_PREFIX)  # A topic's name, which it has, may begin so.
    if not is_payload and any(part.startswith(".") for part in key.split("/")):
        raise HTTPException(400, "a part of a name must not start with a dot")


def _mode(request: Request, key: str, existing: Facts | None) -> Mode:
    """How this PUT may write. Raises HTTPException, PreconditionFailed."""
    mode = write_mode(_combined(request), existing)
    if mode is None:
        raise PreconditionFailed(key, "the version to replace does not exist")
    if key.startswith(PAYLOADS_PREFIX):
        mode = _payload_mode(request, mode, existing)
    if mode == CREATE and existing is not None:
        raise _taken(request, f"{key}: there is an object already")
    return mode


def _payload_mode(request: Request, mode: Mode, existing: Facts | None) -> Mode:
    """A payload is created, or renewed: the bytes that its name promises get a new time."""
    if existing is None or not isinstance(mode, IfMatch):
        return CREATE
    if existing.modified_ms == OUTDATED_MS:
        raise _taken(request, f"{existing.key}: {CONDEMNED}")
    return OVERWRITE


def _why_taken(request: Request, key: str, reason: AlreadyExists) -> str:
    """Objects above and below the key are others': only who may read all learns of them."""
    if rights_of(request).is_unlimited:
        return str(reason)
    return f"{key}: this name cannot be taken"


def _taken(request: Request, sentence: str) -> HTTPException:
    """The key exists already: 412 if the request has a condition, else 409."""
    return HTTPException(412 if "if-none-match" in request.headers else 409, sentence)


def _content_length(request: Request) -> int:
    """The announced length of the body; 0 if unknown."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() else 0


def _limit(text: str | None) -> int:
    if text is None:
        return LIST_LIMIT_MAX
    if not text.isdecimal() or len(text) > DIGITS_MAX or not 1 <= int(text) <= LIST_LIMIT_MAX:
        raise HTTPException(400, f"limit must be a number from 1 to {LIST_LIMIT_MAX}")
    return int(text)


def _object(facts: Facts) -> dict[str, Any]:
    return {
        "key": facts.key,
        "bytes": facts.length,
        "etag": etag(facts),
        "modified_ms": facts.modified_ms,
    }


def _long_json(answer: dict[str, Any]) -> bytes:
    """Made in many steps: in one it would hold the GIL for milliseconds."""
    encoder = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    return "".join(encoder.iterencode(answer)).encode()


def _headers(facts: Facts, wanted: ByteSpan | None) -> dict[str, str]:
    headers = {
        "etag": etag(facts),
        "accept-ranges": "bytes",
        "content-type": "application/octet-stream",
        "x-content-type-options": "nosniff",  # Uploads must not act as pages of this site.
        "content-length": str(facts.length if wanted is None else wanted.length),
    }
    if wanted is not None:
        last = wanted.start + wanted.length - 1
        headers["content-range"] = f"bytes {wanted.start}-{last}/{facts.length}"
    return headers


def _combined(request: Request) -> dict[str, str]:
    return combined(request.headers.items())


def _without_a_body(request: Request, facts: Facts) -> Response | None:
    headers = _combined(request)
    if is_another(headers, facts):
        raise PreconditionFailed(facts.key, "the object has another version")
    if is_unchanged(headers, facts):
        return Response(None, 304, {"etag": etag(facts)})
    return None


def _span(request: Request, facts: Facts) -> ByteSpan | None:
    try:
        return span(_combined(request), facts)
    except Unsatisfiable:
        raise HTTPException(
            416,
            f"{facts.key} has {facts.length} bytes",
            {"content-range": f"bytes */{facts.length}"},
        ) from None
