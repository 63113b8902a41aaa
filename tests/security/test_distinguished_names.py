"""Names of certificates, compared with Java's X500Principal and Kafka's SslPrincipalMapper.

What these two answer is recorded in names.json; the test marked `oracle` asks them again, and
writes the file with SMQ_RECORD=1.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from smq.security.der import UnreadableDer
from smq.security.distinguished_names import MappingRules, subject_of, written
from smq.testing.kafka import kafka_jars

HERE = Path(__file__).parent
RECORDED = HERE / "names.json"
CN, C, L, ST, STREET, ORG, OU, TITLE = (
    f"5504{number:02x}" for number in (3, 6, 7, 8, 9, 10, 11, 12)
)
UID, DC, EMAIL = "0992268993f22c640101", "0992268993f22c640119", "2a864886f70d010901"
UTF8, PRINTABLE, T61, IA5, BMP, UNIVERSAL, INTEGER = 12, 19, 20, 22, 30, 28, 2


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


Value = tuple[str, int, bytes]


def name(*parts: Value | list[Value]) -> bytes:
    """A name in DER; a list is a part with several attributes."""
    sets = (part if isinstance(part, list) else [part] for part in parts)
    return der(0x30, b"".join(der(0x31, b"".join(map(attribute, each))) for each in sets))


def attribute(value: Value) -> bytes:
    kind, tag, content = value
    return der(0x30, der(6, bytes.fromhex(kind)) + der(tag, content))


def cn(text: str) -> Value:
    return CN, UTF8, text.encode()


NAMES = {
    "usual": name((C, PRINTABLE, b"DE"), (ORG, UTF8, b"Example"), (OU, UTF8, b"Team"), cn("alice")),
    "all keywords": name(
        (DC, IA5, b"com"), (ST, UTF8, b"BY"), (L, UTF8, b"Bonn"), (STREET, UTF8, b"Weg 1"),
        (UID, UTF8, b"a1"), cn("x"),
    ),
    "attributes by number": name((EMAIL, IA5, b"a@b.c"), (TITLE, UTF8, b"Dr"), cn("x")),
    "several attributes in a part": name([cn("x"), (UID, UTF8, b"7")], (ORG, UTF8, b"y")),
    "special characters": name(cn(',=+<>#;"\\/')),
    "spaces at the ends": name(cn("  a b  ")),
    "only spaces": name(cn("   ")),
    "line ends": name(cn("\ra\r"), cn("\na\n"), cn("a\rb")),
    "control characters": name(cn("a\x00b\x01\x7f\t")),
    "other scripts": name(cn("zoë 東京 \U0001f600")),
    "invalid UTF-8": name((CN, UTF8, b"a\xff\xc3(")),
    "T61": name((CN, T61, b"a\xe9")),
    "BMP": name((CN, BMP, "aß".encode("utf-16-be"))),
    "universal": name((CN, UNIVERSAL, "aß".encode("utf-32-be"))),
    "no text": name((CN, INTEGER, b"\x05"), (ORG, 4, b"xyz")),
    "empty value": name(cn("")),
    "long": name(cn("x" * 300), (ORG, UTF8, b"y" * 200)),
    "hash first": name(cn("#abc"), cn("a#")),
    "a reserved name": name(cn("unix/root")),
}  # fmt: skip
USUAL = NAMES["usual"]
RULES = [
    "DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/U",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^nothing$/x/, RULE:^CN=([^,]*),.*$/u-$1/",
    "RULE:^.*OU=([^,]*).*$/$0/L",
    "RULE:^CN=(.*?),.*$/$7-$1/",
    "RULE:^CN=(.*?),.*$/a\\/b\\$1/",
    "RULE:^nothing$/x/",
    " RULE:^CN=al(.*?),.*$/$1/ , , DEFAULT ",
]
Case = tuple[bytes, str]
CASES: list[Case] = [*((each, "DEFAULT") for each in NAMES.values())]
CASES += [(USUAL, rules) for rules in RULES]


def ours() -> list[list[str]]:
    names = [(written(each), rules) for each, rules in CASES]
    mapped = [MappingRules(rules).name_of(each) for each, rules in names]
    return [[each, name or "NONE"] for (each, _), name in zip(names, mapped, strict=True)]


def test_names_and_what_rules_make_of_them_are_java_s() -> None:
    assert ours() == json.loads(RECORDED.read_text())


@pytest.mark.oracle
def test_java_still_answers_as_recorded() -> None:
    lines = "".join(f"{each.hex()}\t{rules}\n" for each, rules in CASES)
    command = ["java", "-cp", f"{kafka_jars()}/*", str(HERE / "Names.java")]
    run = subprocess.run(command, input=lines, text=True, capture_output=True, check=True)
    answers = [
        [bytes.fromhex(part).decode() for part in line.split("\t")]
        for line in run.stdout.splitlines()
    ]
    if os.environ.get("SMQ_RECORD"):
        RECORDED.write_text(json.dumps(answers, indent=1) + "\n")
    assert answers == json.loads(RECORDED.read_text())


def certificate(subject: bytes, *, with_version: bool = True) -> bytes:
    version = der(0xA0, der(2, b"\2")) if with_version else b""
    fields = [version, der(2, b"\7"), der(0x30, b""), name(cn("issuer")), der(0x30, b""), subject]
    return der(0x30, der(0x30, b"".join(fields)) + der(0x30, b"") + der(3, b"\0"))


@pytest.mark.parametrize("with_version", [True, False])
def test_the_subject_of_a_certificate_is_found(*, with_version: bool) -> None:
    assert subject_of(certificate(USUAL, with_version=with_version)) == USUAL


def parts_of(data: bytes) -> Iterator[bytes]:
    return (data[:end] for end in range(len(data)))


def test_a_cut_certificate_or_name_is_malformed() -> None:
    for cut in parts_of(certificate(USUAL)):
        with pytest.raises(UnreadableDer):
            subject_of(cut)
    for cut in parts_of(USUAL):
        with pytest.raises(UnreadableDer):
            written(cut)


@pytest.mark.parametrize("length", [600, 3000, 30_000])
def test_a_long_object_id_is_malformed(length: int) -> None:
    kind = der(0x06, b"\x2a" + b"\xff" * length + b"\x01")
    attribute = der(0x30, kind + der(UTF8, b"x"))
    with pytest.raises(UnreadableDer, match="too long"):
        written(der(0x30, der(0x31, attribute)))


@given(st.binary(max_size=60))
def test_garbage_is_malformed_or_some_name(data: bytes) -> None:
    for read in (subject_of, written):
        with suppress(UnreadableDer):
            read(data)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("RULE:^CN=(.*)$", "is no rule"),
        ("nonsense", "is no rule"),
        ("RULE:^CN=(.*)$/$1/X", "is no rule"),
        ("RULE:(?=x)/y/", "is no pattern of RE2"),
        ("RULE:(/y/", "is no pattern of RE2"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(rules: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MappingRules(rules)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" x\r", "CN=\\ x\\\r"),
        (" ", "CN=\\ "),
        ("", "CN="),
        ("x" + " " * 500_000 + "y", "CN=x" + " " * 500_000 + "y"),
    ],
)
def test_spaces_at_the_ends_of_a_value_are_escaped_however_many_are_inside(
    text: str, shown: str
) -> None:
    """A pattern tried each space inside anew: a second for 9,000 of them, an hour for these."""
    assert written(name(cn(text))) == shown
