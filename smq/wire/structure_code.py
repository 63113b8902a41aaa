"""The code of one structure: its class, its reader and its writer.

Where versions differ, the code tests the version. Two things make it fast and keep it readable: one
`struct` call reads or writes adjacent fields of fixed size, and each structure chooses once, not
for each field, between the plain and the compact form of a type.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field as dataclass_field
from typing import TypeVar

from smq.wire.messages.notation import Field
from smq.wire.replaced_code import replacements

_FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q",
    "float64": "d",
}  # fmt: skip
_BYTES = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8}
_NUMBER_ARRAYS = {"int8", "int32", "int64"}
_PYTHON_TYPES = {
    "string": "str", "bytes": "bytes", "uuid": "UUID", "records": "Records", "bool": "bool",
    "float64": "float",
}  # fmt: skip
_ZEROS = {
    "bool": "False", "string": '""', "bytes": 'b""', "uuid": "ZERO_UUID", "float64": "0.0",
}  # fmt: skip
_CONSTANTS = {
    "null": "None",
    "true": "True",
    "false": "False",
    "int32_max": str(2**31 - 1),
    "int32_min": str(-(2**31)),
    "int64_max": str(2**63 - 1),
}
_LINE_LENGTH = 100

Key = TypeVar("Key")


@dataclass
class Used:
    """The imports and structs that a module's code needs."""

    layouts: set[str] = dataclass_field(default_factory=set)
    codec_names: set[str] = dataclass_field(default_factory=set)


def snake(name: str) -> str:
    """`FetchRequest` as `fetch_request`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def element_name(field: Field) -> str:
    """The variable of one element: named for its type, unless the field itself is."""
    name = snake(field.type)
    return f"one_{name}" if name == field.name else name


def is_structure(field: Field) -> bool:
    return field.type[0].isupper()


def is_fixed(field: Field) -> bool:
    return field.type in _FIXED and not field.is_array and field.tag is None


def condition(versions: range, within: range) -> str:
    """The test whether a version of `within` is in `versions`; empty if all are."""
    has_first, has_last = versions.start <= within.start, versions.stop >= within.stop
    if has_first and has_last:
        return ""
    if has_last:
        return f"version >= {versions.start}"
    if has_first:
        return f"version <= {versions.stop - 1}"
    if len(versions) == 1:
        return f"version == {versions.start}"
    return f"{versions.start} <= version <= {versions.stop - 1}"


def spans(versions: range, key: Callable[[int], Key]) -> list[tuple[range, Key]]:
    """Cut versions into ranges that have the same key, newest first."""
    cut: list[tuple[range, Key]] = []
    for version in versions:
        if cut and cut[-1][1] == key(version):
            cut[-1] = (range(cut[-1][0].start, version + 1), cut[-1][1])
        else:
            cut.append((range(version, version + 1), key(version)))
    return cut[::-1]


def wrapped(indent: int, opening: str, parts: list[str], closing: str) -> list[str]:
    """A call or tuple on one line, or on several when it is too long."""
    space = " " * indent
    line = f"{space}{opening}{', '.join(parts)}{closing}"
    if len(line) <= _LINE_LENGTH:
        return [line]
    inner = f"{space}    {', '.join(parts)}"
    if len(inner) <= _LINE_LENGTH and not opening.endswith("= (") and opening != "(":
        return [f"{space}{opening}", inner, f"{space}{closing}"]
    return [f"{space}{opening}", *(f"{space}    {part}," for part in parts), f"{space}{closing}"]


class StructureCode:
    """The code of one structure: its class, its reader and its writer."""

    def __init__(self, field: Field, flexible_from: int, used: Used) -> None:
        self.name = field.type
        self.fields = field.fields
        self.versions = field.versions
        self.flexible = range(max(flexible_from, field.versions.start), field.versions.stop)
        self.used = used
        self.replacements = replacements(
            self.fields, element_name, lambda versions: condition(versions, self.versions)
        )
        self.choices: dict[str, str] = {}  # Local names of functions chosen by version.

    def lines(self) -> Iterator[str]:
        yield from self.class_lines()
        yield from self.reader_lines()
        yield from self.writer_lines()

    # The class

    def class_lines(self) -> Iterator[str]:
        fields = [field for field in self.fields if not field.replaced_by]
        slots = [f'"{field.name}"' for field in fields]
        yield f"class {self.name}(Message):"
        yield from wrapped(4, "__slots__ = (", slots if len(slots) != 1 else [slots[0] + ","], ")")
        yield ""
        if self.fields:
            yield "    def __init__("
            yield "        self,"
            yield "        *,"
            for field in fields:
                yield f"        {field.name}: {self.python_type(field)} = {self.default(field)},"
            yield "    ) -> None:"
            for field in fields:
                yield f"        self.{field.name} = {field.name}"
        yield ""
        yield ""

    def python_type(self, field: Field) -> str:
        name = field.type if is_structure(field) else _PYTHON_TYPES.get(field.type, "int")
        if field.is_array:
            name = f"Sequence[{name}]"
        is_absent = is_structure(field) and not field.is_array  # None is the default structure.
        return f"{name} | None" if field.nullable or is_absent else name

    def default(self, field: Field) -> str:
        if field.default is not None:
            return _CONSTANTS.get(field.default, field.default)
        if field.is_array:
            return "()"
        if is_structure(field) or field.type == "records":
            return "None"
        return _ZEROS.get(field.type, "0")

    # What reader and writer share

    def place(self, field: Field) -> str:
        """Where a field's value is."""
        if field.replaced_by:
            return self.replacements[field.path[0]].place(field)
        return f"message.{field.name}"

    def copy_lines(self, when: str) -> Iterator[str]:
        for each in self.replacements.values():
            yield from each.lines(when)

    def runs(self) -> Iterator[list[Field]]:
        """The fields that are not tagged; adjacent ones of fixed size together."""
        run: list[Field] = []
        for field in self.fields:
            if is_fixed(field):
                run.append(field)
                continue
            if run:
                yield run
                run = []
            if field.tag is None:
                yield [field]
        if run:
            yield run

    def tagged(self) -> list[Field]:
        return sorted((f for f in self.fields if f.tag is not None), key=lambda f: f.tag or 0)

    def form(self, verb: str, field: Field, version: int) -> str:
        """The codec function for a field (or for the count of an array) in one version."""
        compact = "compact_" if version in self.flexible else ""
        nullable = "nullable_" if version in field.nullable else ""
        if field.type == "uuid":
            return f"{verb}_uuid"
        kind = field.type
        if field.is_array:
            kind = f"{field.type}_array" if field.type in _NUMBER_ARRAYS else "count"
        return f"{verb}_{compact}{nullable}{kind}"

    def element_form(self, verb: str, version: int) -> str:
        return f"{verb}_compact_string" if version in self.flexible else f"{verb}_string"

    def chosen(self, field: Field, form: Callable[[int], str]) -> str:
        """The function to call: itself, or a local name for the one that fits the version."""
        options = spans(field.versions, form)
        names = [name for _, name in options]
        self.used.codec_names.update(names)
        if len(options) == 1:
            return names[0]
        expression = names[-1]
        for (versions, _), name in reversed(list(zip(options[:-1], names[:-1], strict=True))):
            expression = f"{name} if version >= {versions.start} else {expression}"
        verb, _, kind = names[0].partition("_")
        local = ("get_" if verb == "read" else "put_") + kind.removeprefix("compact_")
        if self.choices.get(expression, local) != local or (
            local in self.choices.values() and expression not in self.choices
        ):
            local = f"{local}_of_{field.name}"
        return self.choices.setdefault(expression, local)

    def choice_lines(self) -> Iterator[str]:
        for expression, local in sorted(self.choices.items(), key=lambda item: item[1]):
            line = f"    {local} = {expression}"
            if len(line) > _LINE_LENGTH:
                parts = [expression]
                if len(expression) > _LINE_LENGTH - 8:
                    parts = re.split(r" (?=if|else)", expression)
                yield from (f"    {local} = (", *(f"        {part}" for part in parts), "    )")
            else:
                yield line

    def guarded(self, versions: range) -> tuple[list[str], int]:
        """A test for what not all versions have, if it needs one, and how far it is indented."""
        guard = condition(versions, self.versions)
        return ([f"    if {guard}:"], 8) if guard else ([], 4)

    # The reader

    def reader_lines(self) -> Iterator[str]:
        self.choices = {}
        body = [line for run in self.runs() for line in self.read_run(run)]
        body += self.read_tags()
        signature = f"def _read_{snake(self.name)}"
        yield from wrapped(
            0, f"{signature}(", ["buffer: Buffer", "at: int", "version: int"],
            f") -> tuple[{self.name}, int]:",
        )  # fmt: skip
        yield from self.choice_lines()
        yield f"    message = {self.name}()"
        yield from self.copy_lines("before_reading")
        yield from body
        yield from self.copy_lines("after_reading")
        yield "    return message, at"
        yield ""
        yield ""

    def read_run(self, run: list[Field]) -> Iterator[str]:
        if is_fixed(run[0]):
            yield from self.by_layout(run, self.read_fixed)
            return
        (field,) = run
        head, indent = self.guarded(field.versions)
        yield from head
        yield from self.read_field(field, indent)

    def by_layout(
        self, run: list[Field], lines: Callable[[list[Field], int], Iterator[str]]
    ) -> Iterator[str]:
        """Fixed fields: one struct call for each set of them that versions have."""
        layouts = spans(
            self.versions, lambda version: [f.path for f in run if version in f.versions]
        )
        left, head = self.versions, "if"  # Versions without a branch so far.
        for versions, paths in layouts:
            fields = [field for field in run if field.path in paths]
            test = condition(versions, left)
            if versions.stop == left.stop and fields:
                left = range(left.start, versions.start)
            if not fields:
                continue
            if not test and head == "if":
                yield from lines(fields, 4)
                return
            yield f"    {head} {test}:" if test else "    else:"
            yield from lines(fields, 8)
            head = "elif"

    def read_fixed(self, fields: list[Field], indent: int) -> Iterator[str]:
        codes = "".join(_FIXED[field.type] for field in fields)
        self.used.layouts.add(codes)
        targets = [self.place(field) for field in fields]
        call = f"_{codes.replace('?', 'z')}.unpack_from(buffer, at)"
        if len(targets) == 1:
            targets[0] += ","
        yield from wrapped(indent, "(", targets, f") = {call}")
        yield f"{' ' * indent}at += {sum(_BYTES[code] for code in codes)}"

    def read_field(self, field: Field, indent: int) -> Iterator[str]:
        space = " " * indent
        if is_structure(field) and not field.is_array:
            yield from self.read_nullable_structure(field, indent)
            return
        function = self.chosen(field, lambda version: self.form("read", field, version))
        if not field.is_array or field.type in _NUMBER_ARRAYS:
            yield f"{space}{self.place(field)}, at = {function}(buffer, at)"
            return
        if is_structure(field):
            element, arguments = f"_read_{snake(field.type)}", ["buffer", "at", "version"]
        else:
            element = self.chosen(field, lambda version: self.element_form("read", version))
            arguments = ["buffer", "at"]
        item = field.type if is_structure(field) else _PYTHON_TYPES[field.type]
        yield f"{space}count, at = {function}(buffer, at)"
        yield f"{space}{field.name}: list[{item}] = []"
        yield f"{space}for _ in range(count):"
        yield from wrapped(indent + 4, f"{element_name(field)}, at = {element}(", arguments, ")")
        yield f"{space}    {field.name}.append({element_name(field)})"
        null = " if count >= 0 else None" if field.nullable else ""
        if self.place(field) != field.name:
            yield f"{space}{self.place(field)} = {field.name}{null}"

    def read_nullable_structure(self, field: Field, indent: int) -> Iterator[str]:
        assert len(field.nullable) == len(field.versions), "one that is always there is not needed"
        self.used.codec_names.add("read_presence")
        space = " " * indent
        call = f"_read_{snake(field.type)}(buffer, at, version)"
        yield f"{space}is_there, at = read_presence(buffer, at)"
        yield f"{space}if is_there:"
        yield f"{space}    message.{field.name}, at = {call}"

    def read_tags(self) -> Iterator[str]:
        if not self.flexible:
            return
        head, indent = self.guarded(self.flexible)
        yield from head
        space = " " * indent
        tagged = self.tagged()
        if not tagged:
            self.used.codec_names.add("skip_tags")
            yield f"{space}at = skip_tags(buffer, at)"
            return
        self.used.codec_names |= {"read_tag", "read_tag_count", "Malformed"}
        yield f"{space}tag_count, at = read_tag_count(buffer, at)"
        yield f"{space}for _ in range(tag_count):"
        yield f"{space}    tag, at, end = read_tag(buffer, at)"
        for index, field in enumerate(tagged):
            test = condition(field.versions, self.flexible)
            yield f"{space}    {'elif' if index else 'if'} tag == {field.tag}" + (
                f" and {test}:" if test else ":"
            )
            yield from self.read_tagged(field, indent + 8)
        yield f"{space}    else:"
        yield f"{space}        at = end"
        yield f"{space}    if at != end:"
        yield f'{space}        raise Malformed("a tagged field that does not fill its length")'

    def read_tagged(self, field: Field, indent: int) -> Iterator[str]:
        space = " " * indent
        if is_structure(field) and not field.is_array:
            call = f"_read_{snake(field.type)}(buffer, at, version)"
            yield f"{space}message.{field.name}, at = {call}"
        elif field.type in _FIXED:
            yield from self.read_fixed([field], indent)
        else:
            yield from self.read_field(field, indent)

    # The writer

    def writer_lines(self) -> Iterator[str]:
        self.choices = {}
        body = [line for run in self.runs() for line in self.write_run(run)]
        body += self.write_tags()
        parts = [f"message: {self.name}", "version: int", "append: Append"]
        yield from wrapped(0, f"def _write_{snake(self.name)}(", parts, ") -> None:")
        yield from self.choice_lines()
        yield from self.copy_lines("before_writing")
        yield from body or ["    pass"]
        yield ""
        yield ""

    def write_run(self, run: list[Field]) -> Iterator[str]:
        if is_fixed(run[0]):
            yield from self.by_layout(run, self.write_fixed)
            return
        (field,) = run
        head, indent = self.guarded(field.versions)
        yield from head
        yield from self.write_field(field, indent, "append")

    def write_fixed(
        self, fields: list[Field], indent: int, append: str = "append"
    ) -> Iterator[str]:
        codes = "".join(_FIXED[field.type] for field in fields)
        self.used.layouts.add(codes)
        values = [self.place(field) for field in fields]
        call = f"_{codes.replace('?', 'z')}.pack("
        line = f"{' ' * indent}{append}({call}{', '.join(values)}))"
        if len(line) <= _LINE_LENGTH:
            yield line
            return
        yield f"{' ' * indent}{append}("
        yield from wrapped(indent + 4, call, values, ")")
        yield f"{' ' * indent})"

    def write_field(self, field: Field, indent: int, append: str) -> Iterator[str]:
        space = " " * indent
        value = self.place(field)
        if is_structure(field) and not field.is_array:
            self.used.codec_names.add("write_presence")
            yield f"{space}write_presence({append}, {value})"
            yield f"{space}if {value} is not None:"
            yield f"{space}    _write_{snake(field.type)}({value}, version, {append})"
            return
        function = self.chosen(field, lambda version: self.form("write", field, version))
        if field.type == "records" and set(field.nullable) != set(field.versions):
            raise AssertionError("records are nullable in every version")
        # Null in a version without null is our bug: that version's function fails on it.
        ignore = (
            "  # type: ignore[arg-type]" if 0 < len(field.nullable) < len(field.versions) else ""
        )
        yield f"{space}{function}({append}, {value}){ignore}"
        if not field.is_array or field.type in _NUMBER_ARRAYS:
            return
        items = f"{value} or ()" if field.nullable else value
        yield f"{space}for {element_name(field)} in {items}:"
        if is_structure(field):
            writer = f"_write_{snake(field.type)}"
            yield f"{space}    {writer}({element_name(field)}, version, {append})"
        else:
            element = self.chosen(field, lambda version: self.element_form("write", version))
            yield f"{space}    {element}({append}, {field.type})"

    def write_tags(self) -> Iterator[str]:
        if not self.flexible:
            return
        head, indent = self.guarded(self.flexible)
        yield from head
        space = " " * indent
        tagged = self.tagged()
        if not tagged:
            yield f'{space}append(b"\\0")'
            return
        self.used.codec_names.add("Tags")
        yield f"{space}tags = Tags()"
        for field in tagged:
            yield from self.tests(
                space, condition(field.versions, self.flexible), self.is_set(field)
            )
            yield from self.write_tagged(field, indent + 4)
        yield f"{space}tags.write(append)"

    def tests(self, space: str, *tests: str) -> Iterator[str]:
        line = f"{space}if {' and '.join(filter(None, tests))}:"
        if len(line) <= _LINE_LENGTH:
            yield line
            return
        parts = re.split(r" (?=and )", line.strip()[3:-1])
        yield from (f"{space}if (", *(f"{space}    {part}" for part in parts), f"{space}):")

    def is_set(self, field: Field) -> str:
        """The test that a tagged field differs from its default."""
        value = f"message.{field.name}"
        if field.is_array:
            return value
        if is_structure(field):
            return f"{value} is not None and {value} != {field.type}()"
        if field.default == "null":
            return f"{value} is not None"
        if field.type == "bool":
            return value
        return f"{value} != {self.default(field)}"

    def write_tagged(self, field: Field, indent: int) -> Iterator[str]:
        space = " " * indent
        if is_structure(field) and not field.is_array:
            name = snake(field.type)
            yield f"{space}_write_{name}(message.{field.name}, version, tags.add({field.tag}))"
        elif field.type in _FIXED:
            yield from self.write_fixed([field], indent, f"tags.add({field.tag})")
        elif field.is_array:
            yield f"{space}tagged = tags.add({field.tag})"
            yield from self.write_field(field, indent, "tagged")
        else:
            yield from self.write_field(field, indent, f"tags.add({field.tag})")
