"""Arguments are kept as bytes and numbers, or refused in words that help."""

import re
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from smq.client.arguments import (
    SECONDS_MAX,
    TEXT_BYTES_MAX,
    bytes_of,
    duration,
    flag,
    function,
    header_pairs,
    iterator,
    milliseconds_of,
    offsets_by_partition,
    partition_name,
    text,
    text_by_name,
    topic_name,
    whole_number,
)
from smq.client.names import TopicPartition


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"a", b"a"), (None, None), (bytearray(b"a"), b"a"), (memoryview(b"abc")[::2], b"ac")],
    ids=["bytes", "None", "bytearray", "a view"],
)
def test_buffers_become_bytes(value: Any, expected: bytes | None) -> None:
    assert bytes_of("value", value) == expected


def test_an_array_is_its_bytes() -> None:
    assert bytes_of("value", np.array([1, 2], np.int16)) == b"\1\0\2\0"


OBJECTS = np.array([b"a", None], object)
FIELDS = np.zeros(2, [("Offset", np.int64), ("it", object)])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (OBJECTS, "an array of objects"),
        (FIELDS, "an array of objects"),
        (memoryview(OBJECTS), "an array of objects"),  # type: ignore[arg-type]
        (np.ma.masked_array([1, 2], [True, False]), "a masked array, whose mask would be lost"),
        (np.zeros(1, "M8[s]"), "bytes, a buffer or None, not ndarray"),
    ],
    ids=["objects", "fields", "a view", "masked", "times"],
)
def test_arrays_without_bytes_of_their_own_are_refused(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"value is {words}"):
        bytes_of("value", value)


def test_a_field_may_be_called_as_it_likes() -> None:
    assert bytes_of("value", np.zeros(1, [("Offset", np.int64)])) == bytes(8)


@pytest.mark.parametrize("seconds", [float("inf"), 1e12, SECONDS_MAX + 1])
def test_a_duration_that_is_too_long_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="it should be 2000000 at most"):
        duration("timeout", seconds)


def test_text_is_to_be_encoded_by_who_has_it() -> None:
    with pytest.raises(TypeError, match="key is bytes, a buffer or None, not str; encode it"):
        bytes_of("key", "text")
    with pytest.raises(TypeError, match="value is bytes, a buffer or None, not int"):
        bytes_of("value", 3)


@pytest.mark.parametrize(
    "headers",
    [[("a", b"1"), (b"b", None)], (["a", bytearray(b"1")], ["b", None]), {"a": b"1", b"b": None}],
    ids=["tuples", "lists", "mapping"],
)
def test_headers_are_pairs_however_they_are_given(headers: Any) -> None:
    assert header_pairs(headers) == ((b"a", b"1"), (b"b", None))


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (5, "headers is a list of .* pairs, not int"),
        ("ab", "headers is a list of .* pairs, not str"),
        ([b"ab"], "and has b'ab'"),
        ([("a", b"1", 2)], "and has"),
        ([(None, b"1")], "a header's key is text or bytes, not None"),
        ([("a", "text")], "the header b'a' is bytes.*not str; encode it"),
        (np.array(1), "headers is a list of .* pairs, not ndarray"),
        ({5: b""}, "a header's key is text or bytes, not int"),
    ],
    ids=["number", "text", "no pairs", "triple", "no key", "text value", "array", "mapping"],
)
def test_other_headers_are_refused(headers: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        header_pairs(headers)


def test_a_key_of_a_header_goes_as_a_consumer_had_it() -> None:
    key = b"\xff".decode(errors="surrogateescape")
    assert header_pairs([(key, b"")]) == ((b"\xff", b""),)
    with pytest.raises(ValueError, match=r"a header's key is '\\ud800', which has no bytes"):
        header_pairs([("\ud800", b"")])


def test_a_list_is_what_can_be_gone_through_but_text() -> None:
    assert [*iterator("names", (each for each in "ab"), "a list of names")] == ["a", "b"]
    for wrong in (None, 5, "ab", b"ab", np.array(1)):
        with pytest.raises(TypeError, match="names is a list of names, not"):
            iterator("names", wrong, "a list of names")


def test_numbers_are_whole_and_within_their_range() -> None:
    assert whole_number("partition", np.int32(3), 0, 4) == 3
    with pytest.raises(ValueError, match="partition is 4; it should be from 0 to 3"):
        whole_number("partition", 4, 0, 4)
    with pytest.raises(ValueError, match="partition is a number of 3322 bits; it should be"):
        whole_number("partition", 10**1000, 0, 4)
    for wrong in (1.5, True, "1", np.ones(2, int)):
        with pytest.raises(TypeError, match="partition is a whole number, not"):
            whole_number("partition", wrong, 0, 4)


def test_durations_are_seconds_and_within_their_range() -> None:
    assert duration("timeout_s", 0) == 0
    assert duration("timeout_s", 1.5, above=1) == 1.5
    with pytest.raises(ValueError, match="timeout_s is -1; it should be 0 or more"):
        duration("timeout_s", -1)
    for wrong in (0, float("nan")):
        with pytest.raises(ValueError, match=f"age_s is {wrong}; it should be above 0"):
            duration("age_s", wrong, above=0)
    for other in (True, "1", None, np.ones(1)):
        with pytest.raises(TypeError, match="timeout_s is a number of seconds, not"):
            duration("timeout_s", other)


def test_text_and_functions_are_nothing_else() -> None:
    assert text("topic", "clicks") == "clicks"
    assert flag("move", True) is True
    for other in (0, "no", np.ones(2)):
        with pytest.raises(TypeError, match="move is True or False, not"):
            flag("move", other)
    with pytest.raises(ValueError, match=r"group is '\\ud800', which has no bytes in UTF-8"):
        text("group", "\ud800")
    assert text("group", "é" * (TEXT_BYTES_MAX // 2))
    with pytest.raises(ValueError, match=f"has 32768 bytes; it should have {TEXT_BYTES_MAX} at"):
        text("group", "é" * (TEXT_BYTES_MAX // 2 + 1))
    with pytest.raises(TypeError, match="topic is text, not bytes"):
        text("topic", b"clicks")
    function("callback", print)
    with pytest.raises(TypeError, match="callback is a function, not int"):
        function("callback", 5)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "é", "a/b", "a" * 250, "a\n"])
def test_an_invalid_topic_name_is_refused_with_the_rule(name: str) -> None:
    words = f"topic is {re.escape(repr(name))}; it should be 1 to 249 ASCII letters, digits"
    with pytest.raises(ValueError, match=words):
        topic_name("topic", name)
    with pytest.raises(ValueError, match=words):
        partition_name("partitions", (name, 0))


def test_a_name_of_a_topic_is_text() -> None:
    assert topic_name("topic", "a-b_C.9") == "a-b_C.9"
    for wrong in (None, b"a", ["a"]):
        with pytest.raises(TypeError, match="topic is text, not"):
            topic_name("topic", wrong)


def test_a_time_is_whole_milliseconds_and_has_its_zone() -> None:
    east = datetime(1970, 1, 1, 1, 0, 1, 1999, tzinfo=timezone(timedelta(hours=1)))
    assert milliseconds_of("start", east) == 1001
    with pytest.raises(ValueError, match=r"start: 1970-01-01 01:00:01\.001999 has no time zone"):
        milliseconds_of("start", east.replace(tzinfo=None))


def test_wrong_partitions_and_offsets_are_refused_by_name() -> None:
    assert partition_name("partitions", ["t", 1]) == ("t", 1)
    assert offsets_by_partition("ends", {("t", 1): 7}) == {TopicPartition("t", 1): 7}
    for wrong in ("t", ("t",), 5):
        with pytest.raises(TypeError, match="partitions has pairs of a topic and a partition"):
            partition_name("partitions", wrong)
    with pytest.raises(TypeError, match="topic is text, not int"):
        partition_name("partitions", (1, "t"))
    with pytest.raises(ValueError, match=r"the offset of \('t', 1\) is -1"):
        offsets_by_partition("ends", {("t", 1): -1})
    with pytest.raises(TypeError, match="ends is a mapping of partitions to offsets, not list"):
        offsets_by_partition("ends", [("t", 1)])


def test_settings_are_text_by_name() -> None:
    assert text_by_name("configs", None) == {}
    assert text_by_name("configs", {"retention.ms": "1"}) == {"retention.ms": "1"}
    with pytest.raises(TypeError, match=r"retention\.ms in configs is text, not int"):
        text_by_name("configs", {"retention.ms": 1})
    with pytest.raises(TypeError, match="configs is a mapping of names to text, not list"):
        text_by_name("configs", ["retention.ms"])
    with pytest.raises(ValueError, match=r"a in configs is 'x\\udce4', which has no bytes"):
        text_by_name("configs", {"a": "x\udce4"})
    with pytest.raises(ValueError, match=r"a in configs is text, which has no bytes in UTF-8"):
        text_by_name("configs", {"a": "x\udce4"}, are_secret=True)


def test_values_import_nothing_as_a_child_that_is_forked_meanwhile_would_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "numpy.ma", raising=False)
    monkeypatch.delattr(np, "ma", raising=False)
    assert bytes_of("value", bytearray(b"x")) == b"x"
    assert "numpy.ma" not in sys.modules
