"""Keys go where Kafka's clients send them."""

from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given, strategies as st

from smq.model.partitioner import murmur2, partition_of_key

# From Kafka's own test of its hash, signs removed.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_hash_is_kafkas() -> None:
    assert {key: murmur2(key) for key in KNOWN} == {
        key: value & 0xFFFFFFFF for key, value in KNOWN.items()
    }


@given(st.binary(max_size=100))
def test_the_hash_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_a_key_has_a_partition_of_the_topic(key: bytes, partition_count: int) -> None:
    partition = partition_of_key(key, partition_count)
    assert 0 <= partition < partition_count
    assert partition == (aiokafka_murmur2(key) & 0x7FFFFFFF) % partition_count
