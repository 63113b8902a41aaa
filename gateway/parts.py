"""Answers that are made in parts, because one step would hold the loop for too long.

A large request is checked first, so that a malformed one changes nothing. Then its portions are
handled and encoded one by one. For a small request with a large answer the handler returns an
iterator of parts; what it alone sees to be malformed it refuses before its first change.

Each `step` takes a few milliseconds at most; the caller serves others between steps. A portion sees
the catalog and the groups as they are at its step. Duplicates are found within a portion only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from struct import error
from typing import Any, Protocol

from gateway.apis.bounds import Cut
from gateway.apis.table import Api
from gateway.context import Ask, Message, Relay, Step, Wait
from gateway.error_codes import Codes, error_codes, error_codes_of_rows
from gateway.rows import Rows
from smq.model.errors import PeerError
from smq.security.acls import ResourceType
from smq.security.rights import Rights, refusal
from smq.wire.codec import Buffer, Writer
from smq.wire.headers import RequestHeader, write_response_header
from smq.wire.messages.notation import Field
from smq.wire.messages.tables import APIS
from smq.wire.portions import RequestReader, holder, request_structure

_RESPONSES = {api.key: api.messages[f"{api.name}Response"] for api in APIS}


class Parts:
    """One answer in the making: call `step` until it returns True or leaves something `pending`.

    `request` holds its bytes, if it was large. Invariant: while something is `pending`, the caller
    must `add` what it yields (Ask, Wait), or have the whole request answered elsewhere (Relay).

    errors  the error codes of the answer so far, all of them once it is `written`
    """

    def __init__(
        self,
        api: Api,
        header: RequestHeader,
        cut: Cut,
        steps: Iterator[Step],
        request: bytes = b"",
    ) -> None:
        self.api, self.header, self.request = api, header, request
        self._steps = steps
        field = _rows_field(api.key, header.api_version, cut)
        self._path = field.path
        inner = cut.response[len(field.path) :]
        self._new_rows = partial(Rows, api.codec, field, header.api_version, inner)
        self._rows = self._new_rows()
        self._last: Message = None
        self._continues = False
        self.errors: Codes = {}
        self.pending: Ask | Relay | Wait | None = None

    def step(self) -> bool:
        """Take one step; whether the answer is complete. Raises PeerError."""
        assert self.pending is None, "its response is to be added first"
        done = object()
        step = next(self._steps, done)
        if step is done:
            return True
        assert isinstance(step, Step)
        if step.result is not None:
            self._continues = step.continues
            if isinstance(step.result, (Ask, Relay, Wait)):
                self.pending = step.result
                if isinstance(step.result, Wait):  # It is made anew then.
                    self._rows, self.errors = self._new_rows(), {}
            else:
                self.add(step.result)
        return False

    def add(self, response: Message | Step) -> None:
        """Add the response to a part; Step: there is none, take the next step. Raises PeerError."""
        self.pending = None
        if isinstance(response, Step):
            return
        place, name = holder(response, self._path), self._path[-1]
        rows = getattr(place, name)
        error_codes_of_rows(self.api.key, self.header.api_version, self._path, rows, self.errors)
        with saying(self.api):
            self._rows.add(rows, continues=self._continues)
        setattr(place, name, ())  # Its size in bytes bounds it.
        self._last = response

    @property
    def size(self) -> int:
        """About how many bytes the answer has so far."""
        return self._rows.size

    def written(self) -> Writer:
        """The whole answer, with its header. Raises PeerError."""
        assert self._last is not None, "there is a part at least"
        writer, header = Writer(), self.header
        write_response_header(header.correlation_id, header.api_key, header.api_version, writer)
        of_all = error_codes(self.api.key, header.api_version, self._last)  # It has no rows.
        for code, count in of_all.items():
            self.errors[code] = self.errors.get(code, 0) + count
        place, name = holder(self._last, self._path), self._path[-1]
        setattr(place, name, self._rows.written(writer.append))
        with saying(self.api):
            self.api.write_response(self._last, header.api_version, writer)
        return writer


@contextmanager
def saying(api: Api) -> Iterator[None]:
    """Raise PeerError where a version cannot express the answer.

    A name from a flexible version may be longer than older versions can write.
    """
    try:
        yield
    except error as reason:
        raise PeerError(f"{api.name}: the answer does not fit: {reason}") from reason


def _rows_field(api_key: int, version: int, cut: Cut) -> Field:
    """The array whose rows the parts of an answer give, in this version."""
    fields = (each for each in _RESPONSES[api_key].fields if version in each.versions)
    [field] = (each for each in fields if each.path == cut.response[: len(each.path)])
    return field


Handle = Callable[[Message, Any], Any]


class Context(Protocol):
    """What a handler is given."""

    @property
    def rights(self) -> Rights:
        """What the client may do."""


def _allowed(api: Api, handle: Handle, rights: Rights) -> Handle:
    """The handler of a request, or what refuses all of it."""
    refuse = api.refuse
    if refuse is None or rights.asks_cluster(api.rights[0].operation):
        return handle
    return lambda request, _context: refuse(request, refusal(ResourceType.CLUSTER))


def taken(
    api: Api, header: RequestHeader, body: tuple[Buffer, int], handle: Handle, context: Context
) -> Any:  # noqa: ANN401  (what handlers answer, or Parts)
    """Handle a request: its handler's result, or Parts. Raises PeerError.

    `body`: the request, and where its body begins. The request is lent; one that is read later is
    copied.
    """
    request, at = body
    assert len(request) <= api.bounds.bytes_max, "it is refused unread"
    rights = context.rights
    rights.api = api.name
    handle = _allowed(api, handle, rights)
    version, cut = header.api_version, api.bounds.cut
    if len(request) > api.bounds.few_bytes:
        elements_max, path = api.bounds.elements_max, cut.request if cut is not None else ()
        structure = request_structure(api.codec, api.key, version)
        if not _is_small(RequestReader(structure, request, at, path, elements_max), cut):
            assert cut is not None
            kept = bytes(request)
            reader = RequestReader(structure, kept, at, path, elements_max)
            steps = _portions(api, header, reader, handle, context)
            return Parts(api, header, cut, _asking(api, rights, steps), kept)
    result = handle(api.read_request(request, at, version), context)
    if not isinstance(result, Iterator):
        return result
    first, second = next(result), next(result, _END)
    if second is _END:
        return first
    assert cut is not None, f"{api.name} is not answered in parts"
    steps = map(_continued, chain([first, second], result))
    return Parts(api, header, cut, _asking(api, rights, steps))


_END = object()


def _asking(api: Api, rights: Rights, steps: Iterator[Step]) -> Iterator[Step]:
    """The steps, each of which asks for this API; the connection's next request may begin between
    them."""
    while True:
        rights.api = api.name
        step = next(steps, None)
        if step is None:
            return
        yield step


def _is_small(reader: RequestReader, cut: Cut | None) -> bool:
    """Whether a request is handled whole. Raises PeerError."""
    if cut is None:
        for _ in reader.check():
            pass  # Arrays that are not cut hold few elements.
        return True
    return next(reader.check(), _END) is _END and reader.fits(cut.portion_max)


def _continued(response: Message | Step) -> Step:
    """A part as a step: its first row may be the last one of those before, unless it says."""
    return response if isinstance(response, Step) else Step(response, continues=True)


def _portions(
    api: Api,
    header: RequestHeader,
    reader: RequestReader,
    handle: Handle,
    context: Any,  # noqa: ANN401
) -> Iterator[Step]:
    cut = api.bounds.cut
    assert cut is not None
    for _ in reader.check():
        yield Step(None)
    if not reader.is_cut:
        response = handle(api.read_request(*reader.body, header.api_version), context)
        yield from map(_continued, response)
        return
    if api.in_parts is not None:
        yield from api.in_parts(partial(reader.portions, cut.portion_max), context)
        return
    for portion in reader.portions(cut.portion_max):
        result = handle(portion.message, context)
        if not isinstance(result, Iterator):
            yield Step(result, portion.continues)
            continue
        for index, part in enumerate(result):
            yield Step(part, portion.continues or index > 0)
