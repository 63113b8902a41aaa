"""What a subscriber's `filter` says: its grammar, and whether a topic's record type allows it.

    filter   = all { "or" all }
    all      = test { "and" test }
    test     = "not" test | "(" filter ")" | place ( compared | listed | matched | nulled )
    compared = ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) literal
    listed   = [ "not" ] "in" "(" literal { "," literal } ")"
    matched  = [ "not" ] "like" text              "%": any characters, "_": any one
    nulled   = "is" [ "not" ] "null"
    place    = "_key" | "_ts_ns" | "_offset" | "header" "[" text "]" | name { "." name }
    name     = letters, digits and "_" | '"' any characters, '"' twice '"'
    literal  = text | number | "true" | "false"
    text     = "'" any characters, "'" twice "'"

Words are not case-sensitive, names are. A name in double quotes is a column always. A comparison
with null is neither true nor false, as in SQL, and a record has to make the filter true.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

from smq.model.record_types import RecordField, RecordFields, RecordKind

CHARACTERS_MAX, TESTS_MAX, DEPTH_MAX, LITERALS_MAX = 4096, 100, 20, 500
PATTERNS_MAX, PERCENTS_MAX, UNDERSCORES_MAX = 8, 4, 8  # With more, a pattern takes seconds.
KEY, TS_NS, OFFSET, RAW = "_key", "_ts_ns", "_offset", "_value"
INT64_END = 2**63

Literal: TypeAlias = str | int | float | bool


class ColumnPlace(NamedTuple):
    """A field of the RecordValue, by its path."""

    path: tuple[str, ...]


class HeaderPlace(NamedTuple):
    """The last header of a name."""

    name: str


class RecordPlace(NamedTuple):
    """What every record has: KEY, TS_NS or OFFSET."""

    name: str


Place: TypeAlias = ColumnPlace | HeaderPlace | RecordPlace


class Compared(NamedTuple):
    """A place beside a literal."""

    place: Place
    sign: str
    literal: Literal


class Listed(NamedTuple):
    """A place is one of some literals, all of one kind."""

    place: Place
    literals: tuple[Literal, ...]


class Matched(NamedTuple):
    """A place is like a pattern."""

    place: Place
    pattern: str


class IsNull(NamedTuple):
    """A place has no value."""

    place: Place


class Not(NamedTuple):
    """The opposite."""

    test: "Test"


class Both(NamedTuple):
    """All of some tests."""

    tests: tuple["Test", ...]


class Either(NamedTuple):
    """One of some tests."""

    tests: tuple["Test", ...]


PlaceTest: TypeAlias = Compared | Listed | Matched | IsNull
Test: TypeAlias = PlaceTest | Not | Both | Either


class _FilterToken(NamedTuple):
    """`kind`: word, name, text, number, sign or end."""

    kind: str
    text: str
    place: int


_TOKENS = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |"(?P<name>(?:[^"]|"")*)"
    |'(?P<text>(?:[^']|'')*)'
    |(?P<number>[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    |(?P<sign>!=|<>|<=|>=|[=<>()\[\],.]))""",
    re.VERBOSE,
)
_SIGNS = {"=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_END = "the end"


def parse_filter(text: str, fields: Sequence[RecordField] = ()) -> Test:
    """A filter, for records of these fields. Raises ValueError with a sentence."""
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"filter: it has {len(text)} characters; {CHARACTERS_MAX} are allowed")
    return _FilterParser(text, fields).whole()


def places_of(test: Test) -> Iterator[Place]:
    """All places that a filter reads."""
    match test:
        case Not(inner):
            yield from places_of(inner)
        case Both(tests) | Either(tests):
            for each in tests:
                yield from places_of(each)
        case _:
            yield test.place


class _FilterParser:
    """Reads tokens from the left to the right."""

    def __init__(self, text: str, fields: Sequence[RecordField]) -> None:
        self._fields = fields
        self._tokens = [*_tokens(text)]
        self._at = self._depth = self._tests = self._literals = self._patterns = 0

    def whole(self) -> Test:
        test = self._either()
        if self._now.kind != "end":
            self._fail("the end, AND or OR")
        return test

    # --- tokens ----------------------------------------------------------------------------------

    @property
    def _now(self) -> _FilterToken:
        return self._tokens[self._at]

    def _next(self) -> _FilterToken:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _takes(self, *words: str) -> bool:
        """Take these words or signs, if they come next."""
        coming = self._tokens[self._at : self._at + len(words)]
        if [each.text.lower() for each in coming if each.kind in {"word", "sign"}] != [*words]:
            return False
        self._at += len(words)
        return True

    def _must(self, sign: str) -> None:
        if not self._takes(sign):
            self._fail(repr(sign))

    def _fail(self, wanted: str) -> NoReturn:
        found = self._now
        shown = found.text if found.kind == "end" else repr(found.text)
        where = f"filter: at character {found.place + 1}"
        raise ValueError(f"{where}: {wanted} belongs there, not {shown}")

    # --- tests -----------------------------------------------------------------------------------

    def _either(self) -> Test:
        tests = [self._both()]
        while self._takes("or"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else Either(tuple(tests))

    def _both(self) -> Test:
        tests = [self._test()]
        while self._takes("and"):
            tests.append(self._test())
        return tests[0] if len(tests) == 1 else Both(tuple(tests))

    def _test(self) -> Test:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"filter: its tests are nested more than {DEPTH_MAX} deep")
        test = self._inner_test()
        self._depth -= 1
        return test

    def _inner_test(self) -> Test:
        if self._takes("not"):
            return Not(self._test())
        if self._takes("("):
            test = self._either()
            self._must(")")
            return test
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise ValueError(f"filter: it has more than {TESTS_MAX} tests")
        return self._of_place(self._place())

    def _of_place(self, place: Place) -> Test:
        if self._takes("is"):
            is_not = self._takes("not")
            self._must("null")
            return Not(IsNull(place)) if is_not else IsNull(place)
        if self._now.text in _SIGNS and self._now.kind == "sign":
            sign = _SIGNS[self._next().text]
            return Compared(place, sign, self._literal(place))
        is_not = self._takes("not")
        if self._takes("in"):
            test: Test = Listed(place, self._list(place))
        elif self._takes("like"):
            test = Matched(place, self._pattern(place))
        else:
            self._fail("a comparison, IN, LIKE or IS NULL")
        return Not(test) if is_not else test

    def _pattern(self, place: Place) -> str:
        pattern = self._literal(place)
        if not isinstance(pattern, str):
            sentence = f"filter: {_named(place)}: LIKE takes a text in single quotes"
            raise ValueError(sentence)  # noqa: TRY004  (one error, shown to the user)
        if pattern.count("%") > PERCENTS_MAX or pattern.count("_") > UNDERSCORES_MAX:
            most = f"{PERCENTS_MAX} times % and {UNDERSCORES_MAX} times _"
            raise ValueError(f"filter: {_named(place)}: a pattern has at most {most}")
        self._patterns += 1
        if self._patterns > PATTERNS_MAX:
            raise ValueError(f"filter: it has more than {PATTERNS_MAX} patterns")
        return pattern

    def _list(self, place: Place) -> tuple[Literal, ...]:
        self._must("(")
        found = [self._literal(place)]
        while self._takes(","):
            found.append(self._literal(place))
        self._must(")")
        if len({kind_of(each) for each in found}) > 1:
            raise ValueError(f"filter: {_named(place)}: what IN lists is of more than one kind")
        return tuple(found)

    # --- places and literals ---------------------------------------------------------------------

    def _place(self) -> Place:
        token = self._now
        if token.kind == "word":
            if token.text.lower() == "header" and self._tokens[self._at + 1].text == "[":
                self._at += 2
                return self._header()
            if token.text in {KEY, TS_NS, OFFSET}:
                self._at += 1
                return RecordPlace(token.text)
        path = [self._name()]
        while self._takes("."):
            path.append(self._name())
        column = ColumnPlace(tuple(path))
        self._kind(column)
        return column

    def _header(self) -> HeaderPlace:
        if self._now.kind != "text":
            self._fail("a header's name in single quotes")
        name = self._next().text
        self._must("]")
        return HeaderPlace(name)

    def _name(self) -> str:
        if self._now.kind not in {"word", "name"}:
            self._fail("the name of a column")
        return self._next().text

    def _literal(self, place: Place) -> Literal:
        self._literals += 1
        if self._literals > LITERALS_MAX:
            raise ValueError(f"filter: it has more than {LITERALS_MAX} literals")
        token = self._now
        literal: Literal
        if token.kind == "text":
            literal = token.text
        elif token.kind == "number":
            literal = _number(token)
        elif token.kind == "word" and token.text.lower() in {"true", "false"}:
            literal = token.text.lower() == "true"
        else:
            self._fail("a number, a text in single quotes, true or false")
        self._at += 1
        if why := self._misfit(place, literal):
            raise ValueError(f"filter: {_named(place)} {why}")
        return literal

    def _kind(self, column: ColumnPlace) -> RecordKind | None:
        """What the record type says of a column; None: there is no record type."""
        if not self._fields or column.path == (RAW,):
            return None
        fields, kind = self._fields, None
        for at, name in enumerate(column.path):
            if at:
                if not isinstance(kind, RecordFields):
                    raise ValueError(f"filter: {'.'.join(column.path[:at])} is no record")
                fields = kind.fields
            found = next((each for each in fields if each.name == name), None)
            if found is None:
                raise ValueError(f"filter: there is no column {'.'.join(column.path[: at + 1])}")
            kind = None if found.repeated else found.kind
            if found.repeated and at + 1 == len(column.path):
                return "LIST"
        return kind

    def _misfit(self, place: Place, literal: Literal) -> str:
        """Why a literal is none to compare a place with, the end of a sentence; "" if it is."""
        wanted = kind_of(literal)
        match place:
            case HeaderPlace() | RecordPlace(name="_key"):
                return "" if wanted == "text" else f"is compared with a text, not a {wanted}"
            case RecordPlace():
                return (
                    ""
                    if isinstance(literal, int) and wanted == "number"
                    else ("is compared with a whole number")
                )
        kind = self._kind(place)
        if kind is None:
            return ""
        allowed = _COMPARED_WITH.get(kind, "") if isinstance(kind, str) else ""
        if not allowed:
            shown = kind if isinstance(kind, str) else "a record or a list"
            return f"is {shown}: a filter asks only whether that is null"
        if wanted == allowed:
            return ""
        return f"is {kind}, and is compared with a {allowed}, not a {wanted}"


_COMPARED_WITH = {
    **dict.fromkeys(("STRING", "BYTES"), "text"),
    **dict.fromkeys(("INT32", "INT64", "FLOAT", "DOUBLE"), "number"),
    **dict.fromkeys(("TIMESTAMP", "DATE", "TIME"), "number"),  # As SeaweedMQ's values have them.
    "BOOL": "truth value",
}


def kind_of(literal: Literal) -> str:
    """How sentences call what a literal is."""
    if isinstance(literal, bool):
        return "truth value"
    return "text" if isinstance(literal, str) else "number"


def _number(token: _FilterToken) -> int | float:
    if not token.text.lstrip("+-").isdigit():
        return float(token.text)
    number = int(token.text)
    if not -INT64_END <= number < INT64_END:
        raise ValueError(f"filter: at character {token.place + 1}: a whole number has 64 bits")
    return number


def _named(place: Place) -> str:
    match place:
        case ColumnPlace(path):
            return ".".join(path)
        case HeaderPlace(name):
            return f"header[{name!r}]"
        case RecordPlace(name):
            return name


def _tokens(text: str) -> Iterator[_FilterToken]:
    at = 0
    while found := _TOKENS.match(text, at):
        kind = found.lastgroup or ""
        said = found[kind]
        if kind in {"name", "text"}:
            quote = '"' if kind == "name" else "'"
            said = said.replace(2 * quote, quote)
        yield _FilterToken(kind, said, found.start(kind))
        at = found.end()
    if rest := text[at:].strip():
        place = text.index(rest, at)
        raise ValueError(f"filter: at character {place + 1}: {rest[0]!r} begins nothing")
    yield _FilterToken("end", _END, len(text))
