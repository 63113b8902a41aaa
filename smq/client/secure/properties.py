"""Kafka's properties files (java.util.Properties), and what environment variables add to them.

    # a comment            ! one too
    sasl.mechanism = SCRAM-SHA-512
    sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="secret";

A name ends at the first `=`, `:` or space. A backslash at the end of a line joins the next one; it
escapes elsewhere: \\t \\n \\r \\f, four hexadecimal digits after \\u, any other character itself.
A letter beyond U+FFFF is two such escapes, as Java writes it: `\\ud83d\\ude00`.
"""

import os
import re
from collections.abc import Iterator, Mapping

from smq.model.named_files import is_passed_on, read_named
from smq.model.setting import CLIENTS_BEGIN

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PAIR = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The properties of a file. Raises ValueError with a sentence.

    What a shell passes on and is empty is refused: another process has read it, and who connects
    without its properties would do so in plain bytes.
    """
    try:
        data = read_named(path, passed_on_as="properties")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{_shown(path)} cannot be read: {why}") from error
    try:
        found = parse_properties(data.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{_shown(path)} is not UTF-8: {error}") from error
    if not found and is_passed_on(path):
        raise ValueError(f"{_shown(path)} has no properties, or another process has read them")
    return found


def _shown(path: str | os.PathLike[str]) -> str:
    """How an error names the file: somebody may have given its text, with a password."""
    if any(sign in os.fspath(path).lower() for sign in ("=", ": ", "\n", "password")):
        return "the properties file, whose path looks like properties,"
    return f"the properties file {path}"


def parse_properties(text: str) -> dict[str, str]:
    """The properties that a file's text has. Where a name stands twice the last one counts."""
    pairs = (_PAIR.fullmatch(line) for line in _logical_lines(text))
    return {_unescaped(pair[1]): _unescaped(pair[2]) for pair in pairs if pair is not None}


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that environment variables set: `_` in a variable's name is a dot."""
    begin = CLIENTS_BEGIN
    return {
        name.removeprefix(begin).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(begin)
    }


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, each joined with those that continue it."""
    joined = ""
    for line in re.split(r"\r\n|\r|\n", text):
        part = line.lstrip(" \t\f")
        if not joined and (not part or part[0] in "#!"):
            continue
        if _is_continued(part):
            joined += part[:-1]
            continue
        yield joined + part
        joined = ""
    if joined:
        yield joined


def _is_continued(line: str) -> bool:
    """Whether it ends with a backslash that no other one escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    units = _ESCAPED.sub(meant, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")  # Pairs are joined.
