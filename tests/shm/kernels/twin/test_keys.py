"""The plain hash is MurmurHash3, and the last of each key is the last."""

import pytest

from shm.kernels.twin import keys as plain


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        (b"hello, world", "342fac623a5ebc8e4cdcbc079642414d"),
        (
            b"The quick brown fox jumps over the lazy dog.",
            "cd99481f9ee902c9695da1a38987b6e7",
        ),
    ],
)
def test_the_hash_is_murmur3(key: bytes, hashed: str) -> None:
    """Values that other implementations test with (github.com/spaolacci/murmur3)."""
    assert "".join(f"{half:016x}" for half in plain.murmur3(key)) == hashed


def test_the_last_of_each_key_has_its_largest_offset() -> None:
    rows = [(3, b"a"), (5, b"b"), (4, b"a"), (9, None)]
    assert plain.last_of_each(rows) == {b"a": 4, b"b": 5}
