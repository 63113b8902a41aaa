"""Handles round-trip, and nothing else is a handle."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from smq.model.references import (
    CONTENT_TYPE_BYTES_MAX,
    HANDLE_BYTES_MAX,
    LENGTH_MAX,
    NotAHandle,
    Reference,
    directory_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "references.md"
CONTENT_TYPES = st.text(
    st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=CONTENT_TYPE_BYTES_MAX
)
GOOD = Reference.of(1_700_000_000_000, bytes(range(10)), 5, 0x9A71BB4C, "text/plain")


def changed(**fields: object) -> bytes:
    return json.dumps(json.loads(GOOD.handle()) | fields).encode()


@given(
    st.integers(0, 2**48 - 1),
    st.binary(min_size=10, max_size=10),
    st.integers(0, LENGTH_MAX),
    st.integers(0, 2**32 - 1),
    CONTENT_TYPES,
)
def test_a_written_handle_is_read_back(
    now_ms: int, chance: bytes, length: int, crc32c: int, content_type: str
) -> None:
    reference = Reference.of(now_ms, chance, length, crc32c, content_type)
    handle = reference.handle()
    assert Reference.of_handle(handle) == reference
    assert Reference.of_handle(memoryview(handle)) == reference
    other = json.dumps(json.loads(handle), indent=1).encode()  # The same, written by another.
    assert len(other) > HANDLE_BYTES_MAX or Reference.of_handle(other) == reference
    assert len(handle) <= HANDLE_BYTES_MAX


def test_a_handle_reads_as_its_documentation_says() -> None:
    assert GOOD.handle() == (
        b'{"id":"018bcfe5680000010203040506070809-000000000005-9a71bb4c","length":5,'
        b'"crc32c":"9a71bb4c","content_type":"text/plain"}'
    )
    assert GOOD.key("images") == f"payloads/kafka/images/{GOOD.id}"


def test_the_example_of_the_documentation_is_a_handle() -> None:
    [example] = re.findall(r"```json\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    reference = Reference.of_handle(example.encode())
    assert reference.handle().decode() == example
    assert str(reference.length) not in reference.id, "it shows that an id is hexadecimal"


@given(st.binary() | st.text().map(str.encode) | st.none())
def test_garbage_is_no_handle(value: bytes | None) -> None:
    with pytest.raises(NotAHandle):
        Reference.of_handle(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(dict.fromkeys(("id", "length", "crc32c", "content_type"), json_values))
)
def test_fields_of_other_types_are_no_handle(fields: dict[str, object]) -> None:
    with pytest.raises(NotAHandle):
        Reference.of_handle(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "bad",
    [
        f"../other/{GOOD.id}",
        f"{GOOD.id}/..",
        f"{GOOD.id}/../{GOOD.id}",
        f"/{GOOD.id}",
        f"./{GOOD.id}",
        f"{GOOD.id}\0",
        f"{GOOD.id}\n",
        f" {GOOD.id}",
        GOOD.id.upper(),
        GOOD.id.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}"),
        GOOD.id[:-1],
        GOOD.id + "0",
        "",
        "..",
        ".unfinished",
    ],
)
def test_an_id_names_nothing_outside(bad: str) -> None:
    with pytest.raises(NotAHandle, match="not the id of a payload"):
        Reference.of_handle(changed(id=bad))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"length": 6}, "its length is 6"),
        ({"length": True}, "its length is True"),
        ({"length": "5"}, "its length is '5'"),
        ({"crc32c": "00000000"}, "its CRC-32C is '00000000'"),
        ({"crc32c": 0x9A71BB4C}, "its CRC-32C is"),
        ({"content_type": ""}, "content_type is ''"),
        ({"content_type": "a\nb"}, "content_type is"),
        ({"content_type": "é"}, "content_type is"),
        ({"content_type": "x" * 256}, "content_type is"),
        ({"more": 1}, "a handle is an object with"),
    ],
)
def test_a_handle_whose_fields_contradict_its_id_is_refused(
    fields: dict[str, object], words: str
) -> None:
    with pytest.raises(NotAHandle, match=words):
        Reference.of_handle(changed(**fields))


def test_a_payload_that_is_too_long_has_no_reference() -> None:
    with pytest.raises(ValueError, match="the limit is"):
        Reference.of(0, bytes(10), LENGTH_MAX + 1, 0, "text/plain")


def test_topics_have_directories_of_their_own() -> None:
    assert directory_of("kafka", "a") == "payloads/kafka/a/"
