"""The forms that salts have, and salts of a form: a user who does not exist must not be known by
his.

    Kafka's tools and SMQ's make a number of 130 bits, in letters and digits: 25 or 26 of them
    librdkafka makes 64 bytes of any value
    any other client makes what it likes: so many bytes, of a kind of letters
"""

import string
from hashlib import shake_256
from typing import NamedTuple

SALT_BITS = 130  # As ScramFormatter.secureRandomString of Kafka.
LENGTH_MAX = 4096  # Longer ones are seldom, and who has not logged in could ask for them.
_DIGITS = string.digits + string.ascii_lowercase
_TEXTS = (
    string.digits,
    string.digits + "abcdef",
    _DIGITS,
    string.ascii_letters + string.digits,
    string.printable[:95],
)
_KINDS = *(each.encode() for each in _TEXTS), bytes(range(256))
_TABLES = tuple(bytes(kind[i % len(kind)] for i in range(256)) for kind in _KINDS)
_USUAL_LENGTHS = range(25, 27)
_USUAL_MIN = 36**24  # Of 60 numbers of 130 bits one is less, and shorter: a form of its own.


class SaltForm(NamedTuple):
    """The kind of a salt's letters, the narrowest that fits, and how many there are."""

    kind: int
    length: int


USUAL_SALT = SaltForm(_TEXTS.index(_DIGITS), -1)  # Of 130 bits, 25 or 26 letters.


def form_of(salt: bytes) -> SaltForm:
    """The form of a salt."""
    kind = next(i for i, letters in enumerate(_KINDS) if not salt.translate(None, letters))
    if kind == USUAL_SALT.kind and len(salt) in _USUAL_LENGTHS:
        return USUAL_SALT
    return SaltForm(kind, min(len(salt), LENGTH_MAX))


def salt_of(form: SaltForm, key: bytes) -> bytes:
    """The salt of a form that a key of 32 secret bytes makes."""
    if form == USUAL_SALT:
        number = int.from_bytes(key) % (1 << SALT_BITS)
        return base36(number if number >= _USUAL_MIN else number + _USUAL_MIN).encode()
    return shake_256(key).digest(form.length).translate(_TABLES[form.kind])


def base36(number: int) -> str:
    """A number as Java's BigInteger.toString(36) writes it."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
