"""The subject of a certificate as a principal's name, as Kafka on Java has it (KIP-371).

A name is written as Java's X500Principal.getName() does, RFC 2253 with Java's habits: the last part
first, nine attributes by keyword and all others by number with their bytes in hex, a backslash
before special characters, everything else as it is. `ssl.principal.mapping.rules` then make a
shorter name of it.

OpenSSL has verified the certificate before.
"""

import re
from typing import NamedTuple

from smq.model.errors import BrokerError
from smq.model.patterns import Pattern
from smq.security.der import (
    SEQUENCE,
    SUBJECT,
    Element,
    UnreadableDer,
    elements,
    fields_of,
    first_of,
)

_OBJECT_ID = 0x06
_OBJECT_ID_BYTES_MAX = 512  # Those in use have 20; Python writes no number of 4,300 digits.
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 12, 19, 20, 22, 27, 30
_TEXTS = {_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP}  # To Java; a UniversalString is none.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SPECIAL = re.compile(r'[,=+<>#;"\\]')
_END_SPACES = " \r"


def subject_of(certificate: bytes) -> bytes:
    """The subject of a certificate in DER, in DER. Raises UnreadableDer."""
    fields = fields_of(certificate)
    if len(fields) <= SUBJECT or fields[SUBJECT].tag != SEQUENCE:
        raise UnreadableDer("there is no subject")
    return fields[SUBJECT].whole


def written(subject: bytes) -> str:
    """A name in DER as Java writes it. Raises UnreadableDer."""
    parts = [*elements(first_of(subject, SEQUENCE).content)]
    return ",".join("+".join(map(_attribute, elements(part.content))) for part in parts[::-1])


def _attribute(attribute: Element) -> str:
    kind, value = _pair(attribute)
    number = _dotted(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _pair(attribute: Element) -> tuple[Element, Element]:
    parts = [*elements(attribute.content)]
    if len(parts) != 2 or parts[0].tag != _OBJECT_ID:
        raise UnreadableDer("an attribute is no pair")
    return parts[0], parts[1]


def _dotted(object_id: bytes) -> str:
    if len(object_id) > _OBJECT_ID_BYTES_MAX:
        raise UnreadableDer("an object id is too long")
    numbers, number = [], 0
    for byte in object_id:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise UnreadableDer("an object id is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\g<0>", value).replace("\0", "\\00")
    inner = text.strip(_END_SPACES)
    before, after = text[: len(text) - len(text.lstrip(_END_SPACES))], ""
    if inner:
        after = text[len(text.rstrip(_END_SPACES)) :]
    first, last = ("".join(f"\\{each}" for each in spaces) for spaces in (before, after))
    return first + inner + last


_RULE = re.compile(
    r"\s*(?P<rule>DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<name>(?:\\.|[^\\/])*)/(?P<case>[LU]?)|)"
    r"\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class _Rule(NamedTuple):
    """Names that match become `name`; None: the whole name stays."""

    pattern: Pattern | None
    name: str = ""
    case: str = ""

    def apply(self, distinguished_name: str) -> str | None:
        if self.pattern is None:
            return distinguished_name
        groups = self.pattern.groups(distinguished_name)
        if groups is None:
            return None

        def referred(found: re.Match[str]) -> str:
            if found[1]:
                return found[1]
            number = int(found[2])
            return (groups[number] or "") if number < len(groups) else found[0]

        name = _REFERENCE.sub(referred, self.name)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


class MappingRules:
    """`ssl.principal.mapping.rules`: the first that matches makes the name of a principal.

    The patterns are RE2's, which needs time in proportion to the name: a client chooses its own
    names. A pattern is matched with a whole name; Java replaces each match of a pattern in a name
    that matches as a whole, which differs for none that Kafka's documentation has.
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError with a sentence."""
        self._rules: list[_Rule] = []
        at = 0
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None or found.end() == at:
                raise ValueError(f"{text[at:].strip()!r} is no rule: DEFAULT or RULE:pattern/name/")
            at = found.end()
            if found["rule"]:
                self._rules.append(_rule(found))

    def name_of(self, distinguished_name: str) -> str | None:
        """The name of a principal; None: no rule applies, and nobody is logged in."""
        names = (rule.apply(distinguished_name) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def _rule(found: re.Match[str]) -> _Rule:
    if found["pattern"] is None:
        return _Rule(None)
    try:
        pattern = Pattern(found["pattern"])
    except BrokerError:
        raise ValueError(
            f"{found['pattern']!r} is no pattern of RE2, which has no look-around and no "
            "back-references, or is too large"
        ) from None
    return _Rule(pattern, found["name"], found["case"])
