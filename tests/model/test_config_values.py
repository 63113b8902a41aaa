"""Texts become values of Kafka's types, or are refused in its words."""

import math

import pytest

from smq.model.config_values import ConfigType as T, Value, parsed, written


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (T.BOOLEAN, "TRUE", True),
        (T.BOOLEAN, "false", False),
        (T.STRING, "as it is", "as it is"),
        (T.INT, "-2147483648", -(2**31)),
        (T.LONG, "+9223372036854775807", 2**63 - 1),
        (T.DOUBLE, "0.5", 0.5),
        (T.LIST, "a , b", "a,b"),
        (T.INT, "\t\uff15\n", 5),
        (T.LONG, "0" * 30 + "7", 7),
        (T.DOUBLE, "1F", 1.0),
        (T.DOUBLE, ".5d", 0.5),
        (T.DOUBLE, "0x.8p0", 0.5),
        (T.DOUBLE, "-Infinity", -math.inf),
        (T.DOUBLE, "0x1p9999", math.inf),
        (T.BOOLEAN, " true\x00", True),
    ],
)
def test_a_text_is_a_value_of_its_type(kind: T, text: str, value: Value) -> None:
    assert parsed(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "word"),
    [
        (T.BOOLEAN, "yes", "either true or false"),
        (T.INT, "2147483648", "type INT"),
        (T.LONG, "1_000", "type LONG"),
        (T.LONG, "9" * 400, "type LONG"),
        (T.DOUBLE, "half", "type DOUBLE"),
        (T.DOUBLE, "inf", "type DOUBLE"),
        (T.DOUBLE, "0_5", "type DOUBLE"),
        (T.LONG, "\U0001d7d7", "type LONG"),
        (T.LONG, "\u00a05", "type LONG"),
    ],
)
def test_a_text_that_is_no_value_of_its_type_is_refused(kind: T, text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parsed(kind, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        ("as it is", "as it is"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (1e-5, "1.0E-5"),
        (123456789.0, "1.23456789E8"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_a_value_is_written_as_java_does(value: Value, text: str) -> None:
    """Data fault 33."""
    assert written(value) == text


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (T.LIST, "a" + " " * 2_000_000 + "b , c", "a" + " " * 2_000_000 + "b,c"),
        (T.LIST, " ,\t, a ,\x0b", ",,a,"),
        (T.DOUBLE, "1" * 100_000 + "x", None),
        (T.DOUBLE, "0x" + "a" * 100_000 + "x", None),
    ],
)
def test_a_long_text_is_read_in_a_time_that_grows_with_its_length(
    kind: T, text: str, value: Value | None
) -> None:
    """Patterns that tried each place anew took seconds for 32 KiB: minutes for these."""
    if value is None:
        with pytest.raises(ValueError, match="type DOUBLE"):
            parsed(kind, text)
    else:
        assert parsed(kind, text) == value
