"""Every recorded corner of a login at Apache Kafka, played here.

What differs is listed with its reason, and stands in docs/deviations.md.
"""

from collections.abc import Iterator

import pytest

from smq.testing.smq_broker import SmqBroker
from tests.broker.users import add_users
from tests.oracle.login.corners import CORNERS, PLAIN, SHA_256, SHA_512
from tests.oracle.login.record import recorded
from tests.oracle.login.stage import LIFETIME_MS, TOKENS, USERS, play, token_settings
from tests.oracle.rights.login import password

# A request that is none of a login closes here; Kafka answers each with ILLEGAL_SASL_STATE first.
# A token that was issued in the future is refused, and nothing follows a refused token but the end.
# A version of ApiVersions that there is not is answered with all versions, as after a login.
DIFFERENT = {
    "api-versions-first": {f"a version that is none, {i}" for i in range(3)},
    "between-handshake-and-login": {"Metadata 1", "Metadata 9"},
    "logins-again": {"Metadata between"},
    # Kafka closes where our answer is that of other tokens, or of other first messages.
    "claims-of-tokens": {"an end far away", "scopes that are numbers", "issued in the future"},
    "first-messages-of-tokens": {"another scheme"},
    "sessions-of-tokens": {"a good token after a bad one"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    lifetime = "listener.name.corners.scram-sha-256.connections.max.reauth.ms"
    settings = {
        "sasl.enabled.mechanisms": f"{PLAIN},{SHA_256},{SHA_512}",
        lifetime: str(LIFETIME_MS),
    }
    listeners = {"CORNERS": "SASL_PLAINTEXT", TOKENS: "SASL_PLAINTEXT"}
    directory = tmp_path_factory.mktemp("broker")
    settings |= token_settings(directory / "jwks.json", TOKENS.lower())
    with SmqBroker(directory, settings, listeners=listeners) as made:
        add_users(made.bootstrap, {user: password(user) for user in USERS})
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("name", CORNERS)
def test_a_corner_of_a_login_is_as_apache_kafka_answers(broker: SmqBroker, name: str) -> None:
    expected, ours = recorded()[name], play(name, broker.port_of("CORNERS"), broker.port_of(TOKENS))
    others = {step: (ours.get(step), answer) for step, answer in expected.items()}
    others = {step: both for step, both in others.items() if both[0] != both[1]}
    assert others.keys() == DIFFERENT.get(name, set()), others
