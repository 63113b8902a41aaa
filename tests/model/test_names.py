"""Topic names: Kafka's rules."""

import pytest

from smq.model.names import collision_key, is_valid_topic_name, topic_name_problem


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__offsets", "x" * 249])
def test_these_names_are_fine(name: str) -> None:
    assert is_valid_topic_name(name)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        (".", "not allowed"),
        ("..", "not allowed"),
        ("x" * 250, "249"),
        ("a b", "characters"),
        ("a/b", "characters"),
        ("über", "characters"),
        ("a\n", "characters"),
    ],
)
def test_these_are_refused_with_the_reason(name: str, word: str) -> None:
    problem = topic_name_problem(name)
    assert problem is not None
    assert word in problem


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") != collision_key("a-b.c")
