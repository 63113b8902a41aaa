"""Options are those of Spark's Kafka source, with its defaults, precedence and refusals."""

import pytest

from smq.client.locate import AUTO, KAFKA
from smq.client.names import TopicPartition
from spark_jobs.source.options import (
    EARLIEST,
    LATEST,
    Bound,
    WrongOption,
    batch_options,
    include_headers,
    location,
    stream_options,
    typed_topic,
)

BASE = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_defaults_of_a_batch() -> None:
    read, ending = batch_options(BASE)
    assert read.selection.topics == {"orders"}
    assert (read.starting, ending) == (Bound(everywhere=EARLIEST), Bound(everywhere=LATEST))
    assert (read.reads_live, read.fails_on_loss, read.partitions_min) == (True, True, None)
    assert include_headers(BASE) is False


def test_typed_columns_are_of_one_topic() -> None:
    assert typed_topic(BASE) is None
    assert typed_topic({**BASE, "TYPED": "true"}) == "orders"
    place = {"dataDir": "/d", "typed": "true"}
    assert typed_topic({**place, "assign": '{"t":[0,1]}'}) == "t"
    for wrong in ({"subscribe": "a,b"}, {"subscribePattern": "a"}, {"assign": '{"a":[0],"b":[0]}'}):
        with pytest.raises(WrongOption, match="typed is 'true'; subscribe must then be one topic"):
            typed_topic({**place, **wrong})
    with pytest.raises(WrongOption, match="typed is 'yes'; it must be true or false"):
        typed_topic({**BASE, "typed": "yes"})


def test_defaults_of_a_stream() -> None:
    read, admission = stream_options(BASE)
    assert read.starting == Bound(everywhere=LATEST)
    assert (admission.offsets_max, admission.offsets_min) == (None, None)
    assert admission.delay_ms_max == 15 * 60_000


def test_names_and_words_have_any_case() -> None:
    given = {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "b, c,", "startingoffsets": "EARLIEST"}
    read, _ = stream_options({**given, "INCLUDEHEADERS": "True", "failondataloss": "FALSE"})
    assert read.selection.topics == {"b", "c"}
    assert read.starting == Bound(everywhere=EARLIEST)
    assert read.fails_on_loss is False


def test_a_time_wins_over_times_and_these_over_offsets() -> None:
    given = {**BASE, "startingOffsets": '{"t":{"0":1}}'}
    assert batch_options(given)[0].starting == Bound(offsets={T0: 1})
    given["startingOffsetsByTimestamp"] = '{"t":{"0":5}}'
    assert batch_options(given)[0].starting == Bound(times={T0: 5})
    given["startingTimestamp"] = "7"
    assert batch_options(given)[0].starting == Bound(time=7)


def test_a_transport_of_kafka_reads_no_file() -> None:
    assert batch_options(BASE)[0].location.transport == AUTO
    assert location({**BASE, "TRANSPORT": "Kafka"}).transport == KAFKA
    with pytest.raises(WrongOption, match="transport is 'wire'; it must be auto or kafka"):
        location({**BASE, "transport": "wire"})
    with pytest.raises(WrongOption, match="with transport=kafka it must be live"):
        stream_options({**BASE, "transport": "kafka", "tail": "sealed"})


def test_partitions_and_patterns_are_selected() -> None:
    base = {"dataDir": "/somewhere"}
    read, _ = batch_options({**base, "assign": '{"t":[0,1]}'})
    assert read.selection.partitions == {T0, T1}
    read, _ = batch_options({**base, "subscribePattern": "t.*"})
    assert read.selection.pattern == "t.*"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "Only one of the following options"),
        ({"subscribe": None}, "One of the following options must be specified: assign, subscribe"),
        ({"subscribe": " , "}, "subscribe is ' , '"),
        ({"subscribe": None, "subscribePattern": "a("}, "subscribePattern is 'a\\('"),
        ({"subscribe": None, "subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribe": None, "assign": "{}"}, "assign: expected e.g."),
        ({"subscribe": None, "assign": '{"a":0}'}, "assign: expected e.g."),
        ({"kafka.bootstrap.servers": None}, "'kafka.bootstrap.servers' must be specified"),
        ({"kafka.auto.offset.reset": "latest"}, "'auto.offset.reset' is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "'enable.auto.commit' is not supported"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 can't be earliest"),
        ({"startingOffsets": "soon"}, "startingOffsets: expected e.g. .*, got soon"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets: expected"),
        ({"startingOffsets": '{"t":{"x":1}}'}, "startingOffsets: expected"),
        ({"startingOffsets": '{"t":[1]}'}, "startingOffsets: expected"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "startingOffsetsByTimestamp: expected"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday'"),
        ({"minPartitions": "0"}, "minPartitions is '0'; it must be a positive whole number"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is '-1'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no'; it must be true or false"),
        ({"tail": "hot"}, "tail is 'hot'; it must be live or sealed"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "it must be error or latest"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str | None], said: str) -> None:
    given = {name: value for name, value in {**BASE, **options}.items() if value is not None}
    with pytest.raises(WrongOption, match=said):
        batch_options(given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not valid in streaming"),
        ({"endingTimestamp": "1"}, "endingTimestamp is not valid in streaming"),
        ({"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger is 'x'"),
        ({"commitGroup": ""}, "commitGroup is ''; it must be a group's name, and tail be live"),
        ({"commitGroup": "g", "tail": "sealed"}, "commitGroup is 'g'; it must be a group's name"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        (
            {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"},
            r"minOffsetsPerTrigger \(3\) is higher than the maxOffsetsPerTrigger \(2\)",
        ),
    ],
)
def test_wrong_options_of_a_stream_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        stream_options({**BASE, **options})


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("10s", 10_000), ("2 min", 120_000)])
def test_delays_have_units(text: str, ms: int) -> None:
    _, admission = stream_options({**BASE, "maxTriggerDelay": text})
    assert admission.delay_ms_max == ms
