"""The notation of the message tables, and its parser.

Fetch 1 versions 4-18 flexible 12+           an API: name, key, versions, first flexible version
    FetchRequest                             a message, then one line for each field:
        cluster_id  string?     12+  =null tag=0
        topics      []FetchTopic             an array of a structure,
            topic   string      4-12         whose fields are indented further
        ...

int32 string uuid …   a primitive type; anything with a capital is a structure
[]T                   an array of T
T?   T?2-7            null is allowed, in all versions or in these
12+   4-12   8        the versions that have the field; none given: all that the parent has
=x                    the default, a literal or `int32_max` and the like; none given: zero, empty,
                      false, and null for records
tag=0                 a tagged field: at the end, and only when it differs from its default
>groups.topics        newer versions have this field in its place. Classes have only that one: in
                      older versions readers and writers copy it, out of an array's only element.
                      It may stand on the next line
"""

import re
from dataclasses import dataclass, field, replace

PRIMITIVES = frozenset(
    {
        "bool", "int8", "int16", "uint16", "int32", "int64", "float64", "string", "bytes", "uuid",
        "records",
    }
)  # fmt: skip

_API_LINE = re.compile(r"(\w+) (\d+) versions (\d+)-(\d+) flexible (\d+)\+")
_FIELD_LINE = re.compile(
    r"(?P<name>\w+) +(?P<array>\[\])?(?P<type>\w+)(?P<null>\?(?P<null_versions>[\d+-]*))?"
    r"( +(?P<versions>[\d+-]+))?( +=(?P<default>\S+))?( +tag=(?P<tag>\d+))?"
    r"( +>(?P<replaced_by>[\w.]+))?"
)
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure, or a whole message. `fields` are those of its own structure."""

    name: str
    type: str
    versions: range
    is_array: bool = False
    nullable: range = range(0)
    default: str | None = None
    tag: int | None = None
    replaced_by: tuple[str, ...] = ()
    is_single: bool = False  # An array of one element: see `in_newer_places`.
    fields: list["Field"] = field(default_factory=list)

    @property
    def path(self) -> tuple[str, ...]:
        """Where its value is in a message: the names of the fields that lead to it."""
        return self.replaced_by or (self.name,)


@dataclass(frozen=True, slots=True)
class Api:
    """A request and its response, `versions` of them, flexible from one on."""

    name: str
    key: int
    versions: range
    flexible_from: int
    messages: dict[str, Field] = field(default_factory=dict)


def in_newer_places(fields: list[Field], version: int) -> list[Field]:
    """A message's fields in one version, replaced ones where newer versions have them."""
    here = [each for each in fields if version in each.versions]
    found = {each.name: each for each in here if not each.replaced_by}
    newer = {each.name: each for each in fields if not each.replaced_by}
    for older in here:
        place, inner = older.path[0], older.replaced_by[1:]
        if older.replaced_by:
            found.setdefault(place, replace(newer[place], is_single=True, fields=[]))
        for leaf in (each for each in newer[place].fields if each.name in inner):
            is_each = older.is_array and not leaf.is_array  # There is a row for each.
            found[place] = replace(found[place], is_single=not is_each)
            moved = replace(older, name=leaf.name, is_array=leaf.is_array, replaced_by=())
            found[place].fields.append(moved)
    return list(found.values())


def parse_apis(table: str) -> list[Api]:
    """The APIs of a table."""
    apis: list[Api] = []
    levels: list[Field] = []  # The open structures, outermost first.
    for line in filter(None, re.sub(r"\n +>", " >", table).split("\n")):
        depth, remainder = divmod(len(line) - len(line.lstrip()), _INDENT)
        assert remainder == 0, line
        if depth == 0:
            apis.append(_parse_api(line))
        elif depth == 1:
            message = Field(line.strip(), line.strip(), apis[-1].versions)
            apis[-1].messages[message.name] = message
            levels = [message]
        else:
            del levels[depth - 1 :]
            levels.append(_parse_field(line, levels[-1].versions))
            levels[-2].fields.append(levels[-1])
    return apis


def _parse_api(line: str) -> Api:
    matched = _API_LINE.fullmatch(line)
    assert matched, line
    name, *numbers = matched.groups()
    key, first, last, flexible_from = map(int, numbers)
    return Api(name, key, range(first, last + 1), flexible_from)


def _parse_field(line: str, parent_versions: range) -> Field:
    matched = _FIELD_LINE.fullmatch(line.strip())
    assert matched, line
    versions = _parse_versions(matched["versions"], parent_versions)
    nullable = _parse_versions(matched["null_versions"], versions) if matched["null"] else range(0)
    assert matched["type"] in PRIMITIVES or matched["type"][0].isupper(), line
    return Field(
        matched["name"],
        matched["type"],
        versions,
        matched["array"] is not None,
        nullable,
        matched["default"],
        int(matched["tag"]) if matched["tag"] else None,
        tuple(matched["replaced_by"].split(".")) if matched["replaced_by"] else (),
    )


def _parse_versions(text: str | None, parent_versions: range) -> range:
    if not text:
        return parent_versions
    first, _, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return range(int(first), parent_versions.stop)
    return range(int(first), int(last or first) + 1)
