"""From an address to a broker, with or without a door."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from smq.client.errors import BrokerUnavailable, ClosedUnanswered
from smq.client.locate import (
    AUTO,
    KAFKA,
    SHARED_MEMORY,
    Way,
    bootstrap_of,
    is_served_by,
    reach_of,
    way_to,
)
from smq.client.secure.security import PLAINTEXT, Security
from smq.testing.credentials import UsersInMemory
from tests.another_user import needs_root, result_as
from tests.client.fake_kafka import FakeKafka


def test_addresses_are_taken_as_they_are() -> None:
    assert bootstrap_of("a:1,b:2") == "a:1,b:2"


def test_a_data_directory_says_where_its_broker_is(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"bootstrap": "127.0.0.1:7"}))
    assert bootstrap_of(tmp_path) == bootstrap_of(str(tmp_path)) == "127.0.0.1:7"


def test_a_data_directory_is_of_the_cluster_that_its_status_names(tmp_path: Path) -> None:
    """The broker of another host may have the same path."""
    assert not is_served_by(tmp_path, "one")
    (tmp_path / "status.json").write_text(json.dumps({"bootstrap": "a:7", "cluster_id": "one"}))
    assert is_served_by(tmp_path, "one")
    assert not is_served_by(tmp_path, "two")


@pytest.fixture
def sockets() -> Iterator[list[str]]:
    """Of two nodes."""
    with TemporaryDirectory(prefix="smq-") as directory, ExitStack() as stack:
        paths = [f"{directory}/kafka-{node}.sock" for node in (1, 2)]
        for path in paths:
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(path)
        yield paths


def test_a_data_directory_s_broker_is_reached_by_its_sockets(
    tmp_path: Path, sockets: list[str]
) -> None:
    said = {"bootstrap": "127.0.0.1:7", "sockets": sockets}
    (tmp_path / "status.json").write_text(json.dumps(said))
    way = Way(",".join(sockets), Security(socket_owner=os.getuid()))
    assert way_to(tmp_path) == way_to(str(tmp_path)) == way
    assert bootstrap_of(tmp_path) == "127.0.0.1:7"
    assert way_to("a:1") == Way("a:1", PLAINTEXT)


def test_a_client_with_a_login_uses_no_socket(tmp_path: Path, sockets: list[str]) -> None:
    said = {"bootstrap": "127.0.0.1:7", "sockets": sockets}
    (tmp_path / "status.json").write_text(json.dumps(said))
    alice = Security(mechanism="PLAIN", user="alice", password="x")
    assert way_to(tmp_path, alice) == Way("127.0.0.1:7", alice)
    with pytest.raises(ValueError, match="is a unix socket: there is neither TLS nor a login"):
        way_to(sockets[0], alice)


@pytest.mark.parametrize("sockets", [7, [], [7], ["relative"], ["/nowhere"], ["/tmp,/tmp"]])
def test_sockets_that_are_not_here_are_not_used(tmp_path: Path, sockets: object) -> None:
    said = {"bootstrap": "127.0.0.1:7", "sockets": sockets}
    (tmp_path / "status.json").write_text(json.dumps(said))
    assert way_to(tmp_path) == Way("127.0.0.1:7", PLAINTEXT)


def test_a_socket_is_an_address_and_its_directory_s_owner_is_trusted(sockets: list[str]) -> None:
    assert way_to(Path(sockets[0])) == Way(sockets[0], Security(socket_owner=os.getuid()))


@needs_root
@pytest.mark.parametrize("name", [".", "status.json"])
def test_a_login_is_not_sent_where_another_user_s_file_says(tmp_path: Path, name: str) -> None:
    (tmp_path / "status.json").write_text('{"bootstrap": "127.0.0.1:7"}')
    alice = Security(mechanism="PLAIN", user="alice", password="x")
    assert way_to(tmp_path, alice) == Way("127.0.0.1:7", alice)
    os.chown(tmp_path / name, 4321, -1)
    with pytest.raises(ValueError, match="belongs to user 4321, who would be sent the login"):
        way_to(tmp_path, alice)
    assert way_to(tmp_path).bootstrap == "127.0.0.1:7"
    with pytest.raises(BrokerUnavailable, match="no broker serves the data directory"):
        way_to(tmp_path / "none", alice)


@needs_root
def test_another_user_s_data_directory_leads_to_its_socket(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"bootstrap": "127.0.0.1:7"}')
    tmp_path.chmod(0o700)
    said = result_as(4321, lambda: way_to(tmp_path))
    assert said.startswith(
        f"BrokerUnavailable: BROKER_NOT_AVAILABLE: the data directory {tmp_path}"
    )
    assert "the path of its unix socket" in said


DEEP = pytest.param("[" * 200_000, id="deep")


@pytest.mark.parametrize("content", [None, "no json", "{}", "[]", DEEP])
def test_an_unserved_directory_raises_broker_unavailable(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "status.json").write_text(content)
    with pytest.raises(BrokerUnavailable, match=f"no broker serves the data directory {tmp_path}"):
        bootstrap_of(tmp_path)


@pytest.mark.parametrize("settings", [{}, {"runtime.dir": "/nowhere"}], ids=["none", "elsewhere"])
def test_a_broker_without_a_door_here_is_reached_over_the_wire(
    kafka: FakeKafka, settings: dict[str, str]
) -> None:
    kafka.settings = settings
    assert reach_of(kafka.bootstrap, AUTO, 5, 300).open_door is None
    with pytest.raises(BrokerUnavailable, match="cannot be reached by shared memory"):
        reach_of(kafka.bootstrap, SHARED_MEMORY, 5, 300)


def test_a_broker_that_wants_a_login_is_not_taken_for_one_without_a_door(kafka: FakeKafka) -> None:
    """It took half a minute, and so did whatever was asked next."""
    kafka.users = UsersInMemory({})
    with pytest.raises(ClosedUnanswered):
        reach_of(kafka.bootstrap, AUTO, 30, 300)


def test_a_broker_that_does_not_tell_its_settings_is_reached_over_the_wire(
    kafka: FakeKafka,
) -> None:
    kafka.hidden_apis.add("DescribeConfigs")
    reach = reach_of(kafka.bootstrap, AUTO, 5, 300)
    assert (reach.bootstrap, reach.open_door) == (kafka.bootstrap, None)


def test_the_wire_is_not_asked_about_doors(kafka: FakeKafka) -> None:
    assert reach_of(kafka.bootstrap, KAFKA, 5, 300).open_door is None
    assert "DescribeConfigs" not in [name for _, name in kafka.requests]


def test_other_transports_are_refused() -> None:
    with pytest.raises(ValueError, match="transport is 'pigeon'; it should be one of"):
        reach_of("a:1", "pigeon", 5, 300)
    with pytest.raises(TypeError, match="transport is text, not ndarray"):
        reach_of("a:1", np.ones(2), 5, 300)  # type: ignore[arg-type]


def test_a_string_that_is_no_path_is_refused_as_an_address() -> None:
    for wrong in ("x" * 300, "a\0b"):
        with pytest.raises(ValueError, match="a broker's address is host:port, and not"):
            bootstrap_of(wrong)
