"""Topics are asked about again when that was long ago, and given up when they are gone for long."""

from smq.client.producing.channel.links import ProducerTopic
from smq.client.producing.topics import AGE_CHECK_MS, GONE_MS, SentTopics

FACTS = ProducerTopic((0, 1, 0), 1000)


def test_topics_are_out_of_date_after_a_while_which_is_looked_at_now_and_then() -> None:
    topics = SentTopics(10_000, first_partition=4)
    topics.learn("old", FACTS, 0)
    topics.learn("young", FACTS, 5000)
    assert topics.aged(9_999) == set()
    assert topics.aged(9_999 + AGE_CHECK_MS - 1) == set()
    assert topics.aged(9_999 + AGE_CHECK_MS) == {"old"}
    topics.learn("old", FACTS, 11_000)
    assert topics.aged(9_999 + 2 * AGE_CHECK_MS) == set()


def test_a_topic_that_is_postponed_is_out_of_date_a_whole_age_later() -> None:
    topics = SentTopics(10_000, first_partition=4)
    topics.learn("t", FACTS, 0)
    topics.postpone("t", 10_000)
    topics.postpone("unknown", 10_000)
    assert topics.aged(19_999) == set()
    assert topics.aged(19_999 + AGE_CHECK_MS) == {"t"}


def test_records_without_key_go_round_from_a_partition_of_the_producers_own() -> None:
    topics = SentTopics(10_000, first_partition=4)
    topics.learn("t", FACTS, 0)
    found = []
    for _ in range(4):
        found.append(topics.get("t").keyless)
        topics.get("t").rotate_keyless()
    assert found == [1, 2, 0, 1]


def test_a_topic_is_gone_when_it_is_missed_for_long_and_at_once_if_it_never_was() -> None:
    topics = SentTopics(10_000, first_partition=0)
    assert topics.is_gone("t", 1)
    topics.learn("t", FACTS, 1)
    assert not topics.is_gone("t", 5)
    topics.learn("t", FACTS, 6)
    assert not topics.is_gone("t", 5 + GONE_MS)
    assert topics.is_gone("t", 5 + 2 * GONE_MS)
