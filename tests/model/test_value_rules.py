"""Error messages about values of settings, in Kafka's words."""

import math

import pytest

from smq.model.value_rules import (
    Rule,
    at_least,
    between,
    one_of,
    or_default,
    some_of,
    throttled_replicas,
)


@pytest.mark.parametrize(
    ("rule", "good", "bad", "words"),
    [
        (at_least(1), [1, 5, 1.0], [0, 0.9], "Value must be at least 1"),
        (between(1, 17), [1, 17], [18], "Value must be no more than 17"),
        (between(1, 17), [1, 17], [0, -3], "Value must be at least 1"),
        (or_default(-1, 1, 9), [-1, 1, 9], [0, 10, -2], "between 1 and 9 or equal to -1"),
        (one_of("a", "b"), ["a", "b"], ["", "c"], "String must be one of: a, b"),
        (one_of(7, otherwise="set another"), [7], [8], "set another"),
        (between(0, 1), [0, math.nan], [1.1, math.inf, -math.inf], "Value must be "),
        (some_of("a", "b"), ["", "a", "b,a", "a,a"], ["c", "a,", ","], "one of: a, b"),
        (
            throttled_replicas,
            ["", "*", "0:1,2:3", ","],
            ["0", "*,0:1", "a:b", "0:-1"],
            "literal '*'",
        ),
    ],
)
def test_a_rule_takes_its_values_and_says_what_is_wrong_with_others(
    rule: Rule, good: list[float | str], bad: list[float | str], words: str
) -> None:
    assert {rule(value) for value in good} == {""}
    assert all(words in rule(value) for value in bad)
