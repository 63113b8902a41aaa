"""The plain hash is SipHash, and the last of each key is the last."""

from shm.kernels.twin import keys as plain


def test_the_hash_is_siphash_of_128_bits() -> None:
    """The vector of Rust's `siphasher` for SipHash-1-3-128 of nothing under the key 0, 1, 2 …"""
    halves = plain.sip_hash_128(bytes(range(16)), b"")
    said = b"".join(half.to_bytes(8, "little") for half in halves)
    assert (
        said.hex()
        == bytes([231, 126, 188, 178, 39, 136, 165, 190, 253, 98, 219, 106, 221, 48, 48, 1]).hex()
    )


def test_the_last_of_each_key_has_its_largest_offset() -> None:
    rows = [(3, b"a"), (5, b"b"), (4, b"a"), (9, None)]
    assert plain.last_of_each(rows) == {b"a": 4, b"b": 5}
