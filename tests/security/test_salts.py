from hashlib import sha256

import pytest

from smq.security.salts import LENGTH_MAX, SALT_BITS, USUAL_SALT, base36, form_of, salt_of

KEYS = [*(sha256(bytes([number])).digest() for number in range(50)), (36**23 + 35).to_bytes(32)]


def test_salts_of_kafkas_tools_have_one_form_with_one_letter_more_or_less() -> None:
    for number in (1 << SALT_BITS) - 1, 1 << SALT_BITS - 1, 36**24 + 35:
        assert form_of(base36(number).encode()) == USUAL_SALT


@pytest.mark.parametrize(
    "salt",
    [
        b"",
        b"0" * 8,
        b"0f" * 8,
        b"1z" * 13,
        b"1z" * 8,
        b"1zZ" * 8,
        b"salt of alice and of nobody else",
        bytes(range(256)),
    ],
)
def test_a_made_salt_has_the_form_that_it_is_made_of(salt: bytes) -> None:
    form = form_of(salt)
    made = [salt_of(form, key) for key in KEYS]
    assert {form_of(each) for each in made} == {form}
    assert made == [salt_of(form, key) for key in KEYS]
    assert len({*made}) == (len(KEYS) if salt else 1)


@pytest.mark.parametrize("length", [20, 24, 27])
def test_a_salt_of_another_length_has_a_form_of_its_own(length: int) -> None:
    """Of users with such salts one who does not exist was known: his was longer."""
    form = form_of(b"1z" * 20)._replace(length=length)
    assert form_of((b"1z" * 20)[:length]) == form
    assert {len(salt_of(form, key)) for key in KEYS} == {length}


def test_a_salt_that_is_made_is_never_of_megabytes() -> None:
    assert len(salt_of(form_of(b"\xff" * 1_000_000), KEYS[0])) == LENGTH_MAX


def test_base36_writes_numbers_as_int_reads_them() -> None:
    for number in (0, 1, 35, 36, 12345678901234567890):
        assert int(base36(number), 36) == number
