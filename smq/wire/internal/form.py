"""Questions and answers as JSON: written from their types, checked against them when read.

    question   {"do": "fetch_range", "number": 4, …}     its name, then its fields
    answer     {"ok": …}                                 of the type that the question names
               {"error": sentence, "problem": …}         Failed
               {"ok": …} newline, bytes                  where raw bytes belong to an answer

    int, str, bool, None     themselves; a bool is no int
    list, tuple, dict        arrays and objects
    a NamedTuple             an array of its fields in order: short, for rows there are many of
    a dataclass              an object by its fields' names; a field with a default may be missing

A type that has no form here raises TypeError when the first message with it is read.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from smq.model.errors import PeerError
from smq.model.frozen import frozen
from smq.wire.internal.frames import KIND_COMMAND, encode_frame

A_co = TypeVar("A_co", covariant=True)
A = TypeVar("A")
Read = Callable[[Any], Any]
"""From JSON to a value of a type. Raises PeerError."""

_PLAIN = frozenset({int, str, bool, NoneType})


@frozen
class Question(Generic[A_co]):
    """What one of our processes asks another; the answer is an `A_co`, or Failed."""


@frozen
class Failed:
    """The answer to what could not be done: a sentence.

    `problem` says what is wrong in words that do not vary with what was asked, where it is known.
    """

    error: str
    problem: str | None = None

    @property
    def what(self) -> str:
        """The problem if it is known, else the sentence."""
        return self.error if self.problem is None else self.problem


Questions = Mapping[str, type[Question[Any]]]
"""Those that a process answers, by their names."""


def by_name(*kinds: type[Question[Any]]) -> Questions:
    """A table of questions."""
    return {name_of(kind): kind for kind in kinds}


def name_of(kind: type[Question[Any]]) -> str:
    """The name of a question: its class's, as words with underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def answer_type(kind: type[Question[Any]]) -> Any:  # noqa: ANN401  (a type, or a union of types)
    """The type of a question's answer, from its class."""
    [base] = kind.__orig_bases__  # type: ignore[attr-defined]
    [answer] = get_args(base)
    return answer


def encode_question(frame_id: int, question: Question[Any]) -> bytes:
    """A question as a frame."""
    body = {"do": name_of(type(question)), **_fields_of(question)}
    return encode_frame(frame_id, KIND_COMMAND, _json(body))


def decode_question(body: bytes, known: Questions) -> Question[Any]:
    """The question in a frame's body. Raises PeerError with the problem."""
    said = _parsed(body)
    name = said.pop("do", None)
    kind: Any = known.get(name) if isinstance(name, str) else None
    if kind is None:
        raise PeerError(f"there is no command {name!r}")
    try:
        return cast("Question[Any]", _read_of(kind)(said))
    except PeerError as reason:
        raise PeerError(f"{name} is malformed: {reason}") from reason


def encode_answer(frame_id: int, answer: object, data: bytes | None = None) -> bytes:
    """An answer as a frame: a value of the question's type, followed by raw bytes, or Failed."""
    said = _fields_of(answer) if isinstance(answer, Failed) else {"ok": answer}
    body = _json(said)
    return encode_frame(frame_id, KIND_COMMAND, body if data is None else body + b"\n" + data)


def decode_answer(kind: type[Question[A]], body: bytes) -> A | Failed:
    """The answer to a question, without the bytes after it. A malformed answer is Failed."""
    try:
        said = _parsed(body)
        if "ok" in said:
            return cast("A", _read_of(answer_type(kind))(said["ok"]))
        return cast("Failed", _read_of(Failed)(said))
    except PeerError as reason:
        return Failed(f"the answer to {name_of(kind)} is malformed: {reason}")


def _json(value: object) -> bytes:
    return json.dumps(value, default=_fields_of).encode()


def _fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401  (any dataclass)
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as reason:
        raise PeerError(f"it is no JSON: {reason}") from reason
    if not isinstance(said, dict):
        raise PeerError(f"it is no object: {short(said)}")
    return said


@cache
def _read_of(form: Any) -> Read:  # noqa: ANN401  (a type, or a union of types)
    """The reader of a type's values. Raises TypeError for a type without a form."""
    if form in _PLAIN:
        return _read_plain(form)
    if get_origin(form) is not None or isinstance(form, UnionType):
        return _read_generic(form)
    if is_dataclass(form):
        return _read_dataclass(form)
    if isinstance(form, type) and issubclass(form, tuple) and hasattr(form, "_fields"):
        return _read_row(form, tuple(get_type_hints(form).values()))
    raise TypeError(f"{form} has no form in JSON")


def _read_generic(form: Any) -> Read:  # noqa: ANN401  (as above)
    origin, args = get_origin(form), get_args(form)
    if isinstance(form, UnionType) and len(args) == 2 and NoneType in args:
        return _read_optional(next(each for each in args if each is not NoneType))
    if origin is list:
        return _read_list(args[0])
    if origin is tuple and Ellipsis not in args:
        return _read_row(None, args)
    if origin is dict and args[0] is str:
        return _read_dict(args[1])
    raise TypeError(f"{form} has no form in JSON")


def _read_plain(form: type) -> Read:
    def read(value: object) -> object:
        if type(value) is not form:
            raise PeerError(f"{short(value)} is no {form.__name__}")
        return value

    return read


def _read_optional(form: Any) -> Read:  # noqa: ANN401  (as above)
    inner = _read_of(form)
    return lambda value: None if value is None else inner(value)


def _read_list(form: Any) -> Read:  # noqa: ANN401  (as above)
    inner = _read_of(form)

    def read(value: object) -> object:
        if not isinstance(value, list):
            raise PeerError(f"{short(value)} is no list")
        return [inner(each) for each in value]

    return read


def _read_dict(form: Any) -> Read:  # noqa: ANN401  (as above)
    inner = _read_of(form)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise PeerError(f"{short(value)} is no object")
        return {key: inner(each) for key, each in value.items()}

    return read


def _read_row(form: type | None, forms: tuple[Any, ...]) -> Read:
    """Of an array of this many fields: a NamedTuple, or a plain tuple if there is no `form`."""
    inner, count = [_read_of(each) for each in forms], len(forms)
    make = tuple if form is None else form._make  # type: ignore[attr-defined]
    only = forms[0] if len(set(forms)) == 1 and forms[0] in _PLAIN else None

    def read(value: object) -> object:
        if not isinstance(value, list) or len(value) != count:
            raise PeerError(f"{short(value)} is no row of {count} fields")
        if only is not None and set(map(type, value)) == {only}:  # A shard tells very many of them.
            return make(value)
        return make([each(field) for each, field in zip(inner, value, strict=True)])

    return read


def _read_dataclass(form: Any) -> Read:  # noqa: ANN401  (as above)
    hints = get_type_hints(form)
    inner = {each.name: _read_of(hints[each.name]) for each in fields(form)}
    needed = {each.name for each in fields(form) if each.default is MISSING}

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise PeerError(f"{short(value)} is no object")
        if missing := needed - value.keys():
            raise PeerError(f"{', '.join(sorted(missing))} missing")
        if unknown := value.keys() - inner.keys():
            raise PeerError(f"there is no field {', '.join(map(short, sorted(unknown)))}")
        return form(**{name: inner[name](each) for name, each in value.items()})

    return read
