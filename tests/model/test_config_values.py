"""Texts become values of Kafka's types, or are refused in its words."""

import pytest

from smq.model.config_values import ConfigType as T, Value, parsed


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
    ],
)
def test_what_is_none_is_refused(kind: T, text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parsed(kind, text)
