"""Which partition a key goes to: Kafka's rule, murmur2(key) without its sign, modulo the count.

The Java client does the same; librdkafka, Sarama and kafka-go have other defaults.
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a key, unsigned."""
    check = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        check = check * _MULTIPLIER & _WORD ^ word
    if whole < len(data):
        check = (check ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    check = (check ^ check >> 13) * _MULTIPLIER & _WORD
    return check ^ check >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition for all records with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
