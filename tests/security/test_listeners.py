import pytest
from hypothesis import given, strategies as st

from smq.security.listeners import (
    AGENT,
    GRPC,
    Endpoint,
    Protocol,
    grpc_listeners,
    http_host,
    http_told_host,
    listeners_of,
    ranges_that_overlap,
)
from tests.model.configs import config_of

TWO = {
    "listeners": "inside://127.0.0.1:9092, OUTSIDE://0.0.0.0:0",
    "advertised.listeners": "OUTSIDE://queue.example:7000",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,outside:SASL_SSL",
}


def test_the_short_form_is_one_listener() -> None:
    [only] = listeners_of(config_of(command_line={"port": 9000, "advertise": "queue.example"}))
    assert (only.name, only.protocol) == ("PLAINTEXT", Protocol.PLAINTEXT)
    assert (only.listens, only.advertises) == (("127.0.0.1", 9000), ("queue.example", 0))
    assert only.advertised(2, 9002) == ("queue.example", 9002)


def test_several_listeners_have_their_protocols_and_addresses() -> None:
    inside, outside = listeners_of(config_of(command_line=TWO))
    assert (inside.name, inside.protocol) == ("INSIDE", Protocol.PLAINTEXT)
    assert (outside.name, outside.protocol) == ("OUTSIDE", Protocol.SASL_SSL)
    assert (inside.listen_port(0), inside.listen_port(2)) == (9092, 9094)
    assert (outside.listen_port(0), outside.listen_port(2)) == (0, 0)
    assert inside.advertised(1, 9093) == Endpoint("127.0.0.1", 9093)
    assert outside.advertised(1, 54321) == Endpoint("queue.example", 7001)


def test_a_name_is_its_protocol_unless_it_is_mapped() -> None:
    [only] = listeners_of(config_of(command_line={"listeners": "sasl_plaintext://[::1]:1"}))
    assert (only.protocol, only.listens) == (Protocol.SASL_PLAINTEXT, ("::1", 1))


def test_a_listener_without_a_host_listens_on_every_address() -> None:
    given = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://queue.example"}
    [only] = listeners_of(config_of(command_line=given))
    assert only.listens == ("0.0.0.0", 9092)
    assert only.advertised(1, 9093) == ("queue.example", 9093)


def test_beside_logins_only_a_listeners_own_setting_asks_for_certificates() -> None:
    """Kafka warns that the setting of all is for SSL listeners."""
    names = "PLAIN://a:1,ONE://a:2,TWO://a:3,THREE://a:4"
    protocols = "PLAIN:SASL_PLAINTEXT,ONE:SSL,TWO:SASL_SSL,THREE:SASL_SSL"
    given = {
        "listeners": names,
        "listener.security.protocol.map": protocols,
        "ssl.client.auth": "required",
        "listener.name.three.ssl.client.auth": "requested",
    }
    config = config_of(command_line=given)
    listeners = listeners_of(config)
    asked = [each.client_auth(config) for each in listeners]
    assert asked == ["none", "required", "none", "requested"]
    assert [each.ignores_client_auth(config) for each in listeners] == [False, False, True, False]


def test_a_listeners_own_setting_precedes_the_general_one() -> None:
    file = """
    connections.max.reauth.ms = 1
    [listener.name.OUTSIDE]
    ssl.client.auth = "required"
    connections.max.reauth.ms = 2
    scram-sha-256.connections.max.reauth.ms = 3
    """
    config = config_of(command_line=TWO, file=file)
    inside, outside = listeners_of(config)
    assert inside.setting(config, "ssl.client.auth") == "none"
    assert outside.setting(config, "ssl.client.auth") == "required"
    reauth = "connections.max.reauth.ms"
    assert inside.setting(config, reauth, "SCRAM-SHA-256") == 1
    assert outside.setting(config, reauth, "SCRAM-SHA-256") == 3
    assert outside.setting(config, reauth, "PLAIN") == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listeners": "9092"}, "is no NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "has no port"),
        ({"listeners": "PLAINTEXT://a b:1"}, "is not a host or host:port"),
        ({"listeners": "SSL://a:1,ssl://b:2"}, "two listeners SSL"),
        ({"listeners": "X://a:1"}, "no protocol for the listener X; add X:SASL_SSL"),
        (TWO | {"listener.security.protocol.map": "INSIDE"}, "is no NAME:PROTOCOL"),
        (TWO | {"listener.security.protocol.map": "INSIDE:TLS"}, "TLS is none of PLAINTEXT"),
        (TWO | {"listener.security.protocol.map": "A:SSL,a:SSL"}, "it names A twice"),
        (TWO | {"advertised.listeners": "OTHER://x:1"}, "OTHER is none of the listeners"),
        (TWO | {"advertised.listeners": "INSIDE://x:1"}, "OUTSIDE://<host> in advertised"),
        (TWO | {"advertised.listeners": "OUTSIDE://0.0.0.0:1"}, "listens on every address"),
    ],
)
def test_listeners_that_mean_nothing_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        listeners_of(config_of(command_line=given))


@pytest.mark.parametrize(
    ("given", "listens", "told"),
    [
        ({}, "127.0.0.1", "127.0.0.1"),
        ({"host": "10.0.0.1"}, "10.0.0.1", "10.0.0.1"),
        ({"host": "0.0.0.0", "advertise": "x:1", "node.id": 7}, "0.0.0.0", "x"),
        ({"http.host": "10.0.0.1", "advertise": "x"}, "10.0.0.1", "10.0.0.1"),
        ({"http.host": "0.0.0.0", "advertise": "x"}, "0.0.0.0", "x"),
        (TWO, "127.0.0.1", "127.0.0.1"),
        (TWO | {"http.host": "::"}, "::", "127.0.0.1"),
    ],
)
def test_http_listens_on_its_own_host_or_the_short_forms(
    given: dict[str, object], listens: str, told: str
) -> None:
    config = config_of(command_line=given)
    assert (http_host(config), http_told_host(config)) == (listens, told)


@given(st.text(max_size=30), st.text(max_size=30))
def test_garbage_is_refused_with_a_sentence(listeners: str, mapped: str) -> None:
    given = {"listeners": listeners or "x", "listener.security.protocol.map": mapped}
    with pytest.raises(ValueError, match=r"^[a-z.]+: "):
        listeners_of(config_of(command_line=given))


@pytest.mark.parametrize(
    ("other", "overlaps"), [(9089, False), (9090, True), (9094, True), (9095, False)]
)
def test_ranges_of_ports_overlap_when_two_nodes_need_the_same(
    other: int, *, overlaps: bool
) -> None:
    given = {"listeners": f"PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:{other}"}
    found = [*ranges_that_overlap(listeners_of(config_of(command_line=given)), 3)]
    assert bool(found) == overlaps


def test_seaweedmqs_services_are_listeners_with_settings_of_their_own() -> None:
    named = {
        "grpc.port": "17777",
        "agent.port": "0",
        "grpc.host": "10.0.0.7",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GRPC:SASL_SSL",
        "listener.name.grpc.ssl.keystore.location": "/grpc.pem",
        "ssl.keystore.location": "/all.pem",
    }
    config = config_of(command_line=named)
    found = grpc_listeners(config)
    assert [*found] == ["grpc.port", "agent.port"]
    grpc, agent = found.values()
    assert (grpc.name, grpc.protocol) == (GRPC, Protocol.SASL_SSL)
    assert grpc.listens == Endpoint("10.0.0.7", 17777)
    assert grpc.setting(config, "ssl.keystore.location") == "/grpc.pem"
    assert (agent.name, agent.protocol) == (AGENT, Protocol.PLAINTEXT)
    assert agent.setting(config, "ssl.keystore.location") == "/all.pem"
    assert grpc_listeners(config_of()) == {}
