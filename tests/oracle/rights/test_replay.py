"""Who may what in SMQ: the recorded matrix, cell by cell, but where docs/deviations.md says so."""

from collections.abc import Iterator

import pytest

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker
from tests.broker.users import add_users
from tests.oracle.comparison import Difference, differences, read_deviations
from tests.oracle.rights.cell import Doors
from tests.oracle.rights.changes import CHANGES, play as play_change
from tests.oracle.rights.login import password
from tests.oracle.rights.principals import ADMIN, PRINCIPALS
from tests.oracle.rights.record import recorded, recorded_changes
from tests.oracle.rights.stage import SUPER_USERS, all_asked, play, ready
from tests.oracle.stage import SETTINGS
from tests.oracle.test_oracle import lives, words

pytestmark = pytest.mark.timeout(300)
NAMES = sorted(all_asked())
USERS = "USERS"  # The listener on which one must log in.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    settings = SETTINGS | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"{SUPER_USERS};User:ANONYMOUS",  # Who needs no login makes the users.
        "sasl.enabled.mechanisms": "PLAIN",
    }
    listeners = {USERS: "SASL_PLAINTEXT"}
    with SmqBroker(tmp_path_factory.mktemp("smq"), settings, listeners=listeners) as broker:
        add_users(broker.bootstrap, {name: password(name) for name in (ADMIN, *PRINCIPALS)})
        ready(broker.port_of(USERS))
        yield broker


@pytest.fixture(scope="module")
def doors(broker: SmqBroker) -> Iterator[Doors]:
    doors = Doors(broker.port_of(USERS))
    yield doors
    doors.close()


def assert_listed(name: str, found: list[Difference]) -> None:
    """Each difference has a row, and each row a difference."""
    rows = [row for row in read_deviations() if row.is_about(name)]
    unlisted = [each for each in found if not any(row.covers(each) for row in rows)]
    assert not unlisted, words(unlisted)
    no_more = [row for row in rows if not any(row.covers(each) for each in found)]
    assert not no_more, f"listed, but it is no difference any more: {no_more}"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_principal_is_answered_as_by_apache_kafka(
    broker: SmqBroker, doors: Doors, name: str
) -> None:
    lives_before = lives(broker)
    dialogue, found = all_asked()[name], list[Difference]()
    answers = recorded(dialogue)
    for version in dialogue.versions:
        matrix = play(dialogue, version, doors)
        for principal in PRINCIPALS:
            place = f"{name} v{version} / {principal}"
            found += differences(place, answers[version][principal], matrix[principal])
    assert lives(broker) == lives_before, f"a process has died:\n{broker.tail()}"
    assert_listed(name, found)


@pytest.mark.parametrize("name", CHANGES)
def test_rights_change_under_a_connection_as_in_apache_kafka(doors: Doors, name: str) -> None:
    played = play_change(name, doors)
    assert_listed(name, list(differences(f"{name} v12", recorded_changes()[name], played)))
