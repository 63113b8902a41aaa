"""Users, rules and denials of a real broker; and what the end of an audit log tells."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.app.front.desk.access import ANY_OTHER, TAIL_BYTES, denials
from smq.app.front.desk.desk import SdkDesk
from smq.app.process.audit_files import ACCESSES, DIRECTORY
from smq.front.console.desk import Ruling
from smq.model.errors import BrokerError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import Operation, ResourceType
from smq.security.audit import Event, line_of
from smq.testing.smq_broker import SmqBroker
from tests.broker.guarded import allow
from tests.broker.users import add_users

TOPIC = ResourceType.TOPIC
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("access"), SETTINGS) as broker:
        add_users(broker.bootstrap, {"alice": "a", "bob": "b"})
        allow(broker, "alice", TOPIC, "clicks", Operation.READ)
        allow(broker, "carol", TOPIC, "clicks", Operation.READ, host="10.0.0.1")
        yield broker


@pytest.mark.slow
def test_rulings_say_which_principal_may_read_a_topic_and_why(broker: SmqBroker) -> None:
    desk = SdkDesk(broker.data_dir)

    def found(host: str) -> dict[str, Ruling]:
        rulings = desk.rulings(Operation.READ, TOPIC, "clicks", host)
        return {each.principal: each for each in rulings}

    here, there = found("127.0.0.1"), found("10.0.0.1")
    names = {"User:alice", "User:bob", "User:carol", ANY_OTHER}
    assert names <= here.keys()
    assert [name for name in sorted(names) if here[name].allowed] == ["User:alice"]
    assert [name for name in sorted(names) if there[name].allowed] == ["User:alice", "User:carol"]
    assert here["User:alice"].rule == "ALLOW User:alice from * READ on TOPIC clicks (LITERAL)"
    assert here["User:ANONYMOUS"].reason == "it is a super user"
    assert here[ANY_OTHER].reason == "there are rules for it, and none allows this"
    assert len(desk.rules(TOPIC, "clicks")) == 2
    assert desk.rules(TOPIC, "other") == []
    assert len(desk.rules(ResourceType.ANY, "")) == 2


@pytest.mark.slow
def test_users_are_listed_and_deleted(broker: SmqBroker) -> None:
    desk = SdkDesk(broker.data_dir)
    add_users(broker.bootstrap, {"zoe": "z"})
    [zoe] = [each for each in desk.users() if each.name == "zoe"]
    assert zoe.mechanisms == ("SCRAM-SHA-256, 4096 iterations", "SCRAM-SHA-512, 4096 iterations")
    desk.delete_user("zoe")
    assert "zoe" not in [each.name for each in desk.users()]
    with pytest.raises(ValueError, match="no user zoe"):
        desk.delete_user("zoe")


@pytest.mark.slow
def test_without_an_authorizer_there_is_no_ruling(tmp_path: Path) -> None:
    with SmqBroker(tmp_path) as broker, pytest.raises(BrokerError, match="No Authorizer"):
        SdkDesk(broker.data_dir).rulings(Operation.READ, TOPIC, "clicks", "127.0.0.1")


def denied(name: str, count: int = 1) -> str:
    event = Event("denied", "User:bob", "10.0.0.9", "HTTP", "Fetch", "READ", "TOPIC", name)
    return line_of(event, 1_700_000_000_000, count)


def test_the_newest_denials_come_first_from_the_log_and_the_one_before_it(tmp_path: Path) -> None:
    folder = tmp_path / DIRECTORY
    folder.mkdir()
    login = line_of(Event("login", "User:bob"), 0)
    (folder / f"{ACCESSES}.1").write_text(f"{denied('a')}\n{denied('b', 7)}\n")
    (folder / ACCESSES).write_text(f'{login}\n{denied("c")}\n[1]\n\xff{{\n{denied("d")}\n{{"ev')
    found = denials(tmp_path, 10)
    assert [each.resource for each in found] == ["d", "c", "b", "a"]
    assert [each.times for each in found] == ["1", "1", "7", "1"]
    assert found[0].principal == "User:bob"
    assert len(denials(tmp_path, 3)) == 3


def test_the_end_of_a_long_log_is_read_alone(tmp_path: Path) -> None:
    folder = tmp_path / DIRECTORY
    folder.mkdir()
    lines = [denied(f"t{number}") for number in range(2 * TAIL_BYTES // len(denied("t")))]
    (folder / ACCESSES).write_text("\n".join(lines) + "\n")
    found = denials(tmp_path, len(lines))
    assert 0 < len(found) < len(lines)
    assert found[0].resource == f"t{len(lines) - 1}"


def test_a_log_that_is_not_there_or_a_link_has_no_denials(tmp_path: Path) -> None:
    assert denials(tmp_path, 10) == []
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / "elsewhere").write_text(denied("x") + "\n")
    (tmp_path / DIRECTORY / ACCESSES).symlink_to(tmp_path / "elsewhere")
    assert denials(tmp_path, 10) == []
