"""The recorded corners are whole, and a live Apache Kafka still answers so (marker `oracle`)."""

from collections.abc import Iterator

import pytest

from smq.testing.kafka import KAFKA_VERSION, Kafka, KafkaUnavailable
from tests.oracle.comparison import differences
from tests.oracle.login.corners import CORNERS
from tests.oracle.login.record import RECORDED, recorded, text
from tests.oracle.login.stage import TOKENS, play, start_kafka


def test_every_corner_is_recorded() -> None:
    assert list(recorded()) == list(CORNERS)
    assert all(recorded().values())


def test_the_recording_is_written_a_line_a_step() -> None:
    assert text(recorded()) == RECORDED.read_text()
    assert f'"kafka": "{KAFKA_VERSION}"' in RECORDED.read_text()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    try:
        broker = start_kafka(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with broker:
        yield broker


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CORNERS)
def test_the_recorded_corner_is_what_apache_kafka_answers(kafka: Kafka, name: str) -> None:
    assert not list(
        differences(name, recorded()[name], play(name, kafka.port, kafka.port_of(TOKENS)))
    )
