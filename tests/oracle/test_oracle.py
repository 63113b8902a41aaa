"""Our answers are Apache Kafka's, but where docs/deviations.md says otherwise.

The recorded answers are compared with those of our broker. With the marker `oracle`, they are
compared with a live Apache Kafka too, which shows that the recording still holds.
"""

from collections.abc import Iterator

import pytest

from gateway.apis.table import APIS, Api
from smq.testing.kafka import KafkaUnavailable
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.apis import API_BY_NAME
from tests.oracle.comparison import Deviation, Difference, differences, read_deviations
from tests.oracle.dialogues import Dialogue
from tests.oracle.record import recorded
from tests.oracle.rights.changes import CHANGES
from tests.oracle.rights.stage import all_asked
from tests.oracle.stage import all_dialogues, play, start

pytestmark = pytest.mark.timeout(120)

NAMES = sorted(all_dialogues())
SHOWN_MAX = 30


@pytest.fixture(scope="module")
def smq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    broker = start("smq", tmp_path_factory.mktemp("smq"))
    assert isinstance(broker, SmqBroker)
    with broker:
        yield broker


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        broker = start("kafka", tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with broker:
        yield broker


def played(dialogue: Dialogue, broker: Broker) -> list[Difference]:
    """All differences of one dialogue, in all its versions."""
    answers = recorded(dialogue)
    found: list[Difference] = []
    for version in dialogue.versions:
        steps = play(dialogue, version, broker.port)
        found += differences(f"{dialogue.name} v{version}", answers.get(version, {}), steps)
    return found


def words(found: list[Difference]) -> str:
    lines = [f"{each.place}: Kafka {each.kafka!r}, here {each.smq!r}" for each in found]
    return "\n".join([f"{len(found)} differences", *lines[:SHOWN_MAX]])


def lives(broker: SmqBroker) -> dict[str, int]:
    """How often each process was started again."""
    return {name: each.restarts for name, each in broker.status().processes.items()}


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_apache_kafka(smq: SmqBroker, name: str) -> None:
    lives_before = lives(smq)
    found = played(all_dialogues()[name], smq)
    assert lives(smq) == lives_before, f"a process has died:\n{smq.tail()}"
    rows = [row for row in read_deviations() if row.is_about(name)]
    unlisted = [each for each in found if not any(row.covers(each) for row in rows)]
    assert not unlisted, words(unlisted)
    no_more = [row for row in rows if not any(row.covers(each) for each in found)]
    assert not no_more, f"listed, but it is no difference any more: {no_more}"


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_recording_is_what_apache_kafka_answers(kafka: Broker, name: str) -> None:
    found = played(all_dialogues()[name], kafka)
    assert not found, words(found)


@pytest.mark.parametrize("api", APIS, ids=[each.name for each in APIS])
def test_every_api_is_asked_in_its_lowest_first_flexible_and_highest_version(api: Api) -> None:
    asked = {
        version
        for dialogue in all_dialogues().values()
        if dialogue.api == api.name
        for version in dialogue.versions
    }
    flexible = API_BY_NAME[api.name].flexible_from
    assert {api.versions[0], min(flexible, api.versions[-1]), api.versions[-1]} <= asked


def test_every_deviation_is_about_a_dialogue() -> None:
    names = [*NAMES, *all_asked(), *CHANGES]
    lost = [row for row in read_deviations() if not any(map(row.is_about, names))]
    assert not lost


def test_a_difference_is_found_at_its_place() -> None:
    one = {"s": {"a": [1, {"b": 2}], "c": None}}
    other = {"s": {"a": [1, {"b": 3}, 4]}}
    assert list(differences("d v1", one, other)) == [
        Difference("d v1 / s / a[1].b", 2, 3),
        Difference("d v1 / s / a[2]", "(nothing)", 4),
        Difference("d v1 / s / c", None, "(nothing)"),
    ]


def test_a_pattern_covers_the_places_it_names_only() -> None:
    row = Deviation("d", "d v* / s / a[*].b", "why")
    assert row.covers(Difference("d v1 / s / a[1].b", 2, 3))
    assert not row.covers(Difference("d v1 / s / a[1].bc", 2, 3))
