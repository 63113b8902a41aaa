"""Where a partition's files lie."""

from smq.model.segments import SealedPartition, directory_of


def test_keys_sort_as_offsets_do() -> None:
    place = SealedPartition("kafka", "orders", 3, 17)
    keys = [place.key(base, base + 5, 1, "parquet") for base in (0, 9, 10, 2**62)]
    assert keys == sorted(keys)
    assert keys[0] == "topics/kafka/orders/partition=3/00000000000000000000-5-1.parquet"
    assert keys[0].startswith(directory_of("kafka", "orders"))
