"""The partitions of Kafka's internal topics are those that Java's hash finds."""

import time

import pytest

from gateway.java_hash import java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("group", 98629247),
        ("consumer-7", 166239200),
        ("polygenelubricants", 0),
        ("\U0001f600\ud800", 55015165),
    ],
)
def test_a_hash_is_that_of_java_without_its_sign(text: str, value: int) -> None:
    """data fault 32, its kind: DescribeTransactions cut the sign off where Apache Kafka takes the
    absolute value, and named other partitions of __consumer_offsets."""
    assert java_hash(text) == value


@pytest.mark.parametrize("size", [1, 2, 1023, 1024, 1025, 5000])
def test_a_hash_is_that_of_its_letters_one_by_one(size: int) -> None:
    text = "".join(chr(33 + 7 * place % 90) for place in range(size))
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    signed = (value ^ 0x80000000) - 0x80000000
    assert java_hash(text) == abs(signed)


def test_a_long_name_takes_microseconds() -> None:
    """Data fault 13, its kind: 500 names of 32 KiB held the coordinator for more than a second."""
    name = "x" * 32_000
    seconds = []
    for _ in range(20):
        began = time.thread_time()
        java_hash(name)
        seconds.append(time.thread_time() - began)
    assert min(seconds) < 0.0005
