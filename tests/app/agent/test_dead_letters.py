"""Dead letters: their topics' names, and what they say of themselves."""

from smq.agent.read_records import ReadRecord
from smq.app.agent.dead_letters import NAME_CHARACTERS_MAX, DeadLetter, headers_of, topic_of
from smq.client.names import TopicPartition
from smq.model.names import topic_name_problem


def test_a_groups_dead_letters_have_a_topic_that_may_be() -> None:
    assert topic_of("shop.orders", "g") == "shop.orders.g.dlq"
    for group in ("a group/with: signs", "é", "x" * 500):
        name = topic_of("shop.orders", group)
        assert name.endswith(".dlq")
        assert len(name) <= NAME_CHARACTERS_MAX
        assert topic_name_problem(name) is None


def test_a_dead_letter_says_where_its_record_was_and_why_it_is_here() -> None:
    message = ReadRecord(offset=7)
    letter = DeadLetter(TopicPartition("t", 3), "g", message, 5, "it failed")
    assert dict(headers_of(letter)) == {
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"it failed",
    }
