"""How bytes look: whatever they are, as text in which nothing is hidden."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.front.console.text import (
    INDENTED_LETTERS_MAX,
    NAME_LETTERS,
    PARSED_BYTES_MAX,
    SHOWN_BYTES_MAX,
    Shown,
    moment,
    number,
    pretty,
    seconds,
    shown,
    size,
    visible,
)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", ""),
        (b"plain", "text", "plain"),
        (b'{"a": 1}', "JSON", '{"a": 1}'),
        (b"{not json", "text", "{not json"),
        (b"\xff\x00", "binary", "ff 00"),
        (b"\x00\x01\x02", "binary", "00 01 02"),
        (b"\x93NUMPY\x01", "NumPy", "93 4e 55 4d 50 59 01"),
        (b"Obj\x01", "Avro", "4f 62 6a 01"),
        ("a\u202eb\x00c - and more text".encode(), "text", "a\\u{202e}b\u2400c - and more text"),
        (b"[" * PARSED_BYTES_MAX, "text", "[" * PARSED_BYTES_MAX),
        (b"[" + b"0," * PARSED_BYTES_MAX, "JSON", "[" + "0," * PARSED_BYTES_MAX),  # By its looks.
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, kind: str, text: str) -> None:
    assert shown(data, len(data or b"")) == Shown(kind, text)


def test_text_that_is_cut_within_a_character_is_text() -> None:
    data = "aä".encode()[:2]
    assert shown(data, 3) == Shown("text", "a", is_cut=True)
    assert shown(data, 2).kind == "binary"


def test_headers_say_what_a_value_is() -> None:
    arrow = (("content-type", b"application/vnd.apache.arrow.stream"),)
    assert shown(b"abc", 3, arrow).kind == "Arrow"
    assert shown(b"{}", 2, (("smq-ref", b"1"),)).kind == "reference"
    assert shown(b"abc", 3, (("content-type", None),)).kind == "text"


def test_json_is_indented_on_a_page_of_its_own_unless_it_is_cut() -> None:
    assert pretty(b'{"a":[1]}', 9).text == '{\n  "a": [\n    1\n  ]\n}'
    assert pretty(b'{"a":[1', 9).text == '{"a":[1'


def test_long_json_is_not_indented() -> None:
    """The parser held the GIL, and the loop, for ten milliseconds."""
    short = b"[" + b" " * (PARSED_BYTES_MAX - 2) + b"]"
    assert pretty(short, len(short)).text == "[]"
    long = short[:-1] + b" ]"
    assert pretty(long, len(long)) == Shown("JSON", long.decode())


@pytest.mark.parametrize("depth", [300, 900, 990, 5000])
def test_json_that_grows_with_its_depth_is_not_indented(depth: int) -> None:
    """64 KiB of it became 52 MB."""
    inner = (PARSED_BYTES_MAX - 2 * depth) // 2 - 1
    data = b"[" * depth + b"1," * inner + b"1" + b"]" * depth
    found = pretty(data, len(data))
    assert len(found.text) <= INDENTED_LETTERS_MAX
    assert found.text == data.decode()


@pytest.mark.parametrize("show", [shown, pretty])
@pytest.mark.parametrize("byte", [b"\x7f", b"[", b"1"])
def test_keys_and_values_are_cut_before_they_are_made_visible(show: Any, byte: bytes) -> None:
    data = byte * (8 << 20)
    found = show(data, len(data))
    assert found.text == visible(byte.decode()) * SHOWN_BYTES_MAX
    assert found.is_cut


def test_names_are_cut_before_they_are_made_visible() -> None:
    assert visible("\x7f" * 32_767) == "\\u{7f}" * NAME_LETTERS + "…"
    assert visible("abc", 2) == "ab…"
    assert visible("abc", 3) == "abc"


@given(st.text())
def test_letters_of_any_text_are_made_visible_alike(text: str) -> None:
    assert visible(text) == "".join(map(visible, text))


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_shown_without_what_a_page_cannot_hold(data: bytes, left: int) -> None:
    found = pretty(data, len(data) + left)
    found.text.encode()
    assert all(each.isprintable() or each in "\n\t\u3000" for each in found.text)


def test_lone_surrogates_are_seen() -> None:
    assert visible("a\udc80") == "a\\u{dc80}"


def test_numbers_have_units() -> None:
    assert [size(0), size(1023), size(1536), size(2**60)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1024.0 PiB",
    ]
    assert number(1234567) == "1\u202f234\u202f567"
    assert moment(0) == "1970-01-01 00:00:00.000 UTC"
    assert moment(2**62) == str(2**62)
    assert moment(-1) == "1969-12-31 23:59:59.999 UTC"
    assert [seconds(x) for x in (None, 0.25, 30, 120, 7200, 200_000)] == [
        "\u2013",
        "0.2 s",
        "30 s",
        "2 min",
        "2 h",
        "2 d",
    ]
