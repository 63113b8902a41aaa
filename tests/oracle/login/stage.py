"""Where the corners are played: a broker with some users and three mechanisms, and a listener for
tokens.

A session of SCRAM-SHA-256 has a lifetime, those of tokens end with them, the others have none.
"""

from pathlib import Path
from typing import Any

from smq.testing.kafka import Kafka
from tests.oracle.login.corners import CORNERS, PLAIN, SHA_256, SHA_512
from tests.oracle.login.knock import Knock, log_in
from tests.oracle.login.token_corners import OAUTHBEARER, OF_TOKENS
from tests.oracle.rights.login import password
from tests.oracle.stage import KAFKA_SETTINGS
from tests.security.issuer import AUDIENCE, ISSUER, write_jwks

TOKENS = "TOKENS"  # A listener.
KEYS = ("rsa", "p-256", "p-384", "p-521")
USERS = ("admin", "alice", "bob")
LIFETIME_MS = 2000
_MODULES = "org.apache.kafka.common.security"
_LISTENER = "listener.name.plaintext"


def token_settings(keys: Path, listener: str) -> dict[str, str]:
    """Which tokens a listener takes. `keys`: the file for the issuer's keys."""
    begin = f"listener.name.{listener}.oauthbearer.sasl.oauthbearer"
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": OAUTHBEARER,
        f"{begin}.jwks.endpoint.url": write_jwks(keys, *KEYS),
        f"{begin}.expected.audience": AUDIENCE,
        f"{begin}.expected.issuer": ISSUER,
    }


def kafka_settings(keys: Path) -> dict[str, str]:
    users = "".join(f' user_{name}="{password(name)}"' for name in USERS)
    plain = f'{_MODULES}.plain.PlainLoginModule required username="admin" '
    plain += f'password="{password("admin")}"{users};'
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    listener = TOKENS.lower()
    bearer = f"{_MODULES}.oauthbearer.OAuthBearer"
    of_tokens = token_settings(keys, listener) | {
        f"listener.name.{listener}.oauthbearer.sasl.jaas.config": f"{bearer}LoginModule required;",
        f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class": (
            f"{bearer}ValidatorCallbackHandler"
        ),
    }
    return (
        KAFKA_SETTINGS
        | of_tokens
        | {
            "listener.security.protocol.map": (
                f"PLAINTEXT:SASL_PLAINTEXT,{TOKENS}:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            f"{_LISTENER}.sasl.enabled.mechanisms": f"{PLAIN},{SHA_256},{SHA_512}",
            f"{_LISTENER}.plain.sasl.jaas.config": plain,
            f"{_LISTENER}.scram-sha-256.sasl.jaas.config": scram,
            f"{_LISTENER}.scram-sha-512.sasl.jaas.config": scram,
            f"{_LISTENER}.scram-sha-256.connections.max.reauth.ms": str(LIFETIME_MS),
        }
    )


def start_kafka(directory: Path) -> Kafka:
    """Without an authorizer: who may what is another matter."""
    options = []
    for user in USERS:
        for mechanism in (SHA_256, SHA_512):
            credential = f"[name={user},password={password(user)},iterations=4096]"
            options += ["--add-scram", f"{mechanism}={credential}"]
    keys = directory / "jwks.json"
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
    broker = Kafka(
        directory,
        kafka_settings(keys),
        options,
        listeners={TOKENS: "SASL_PLAINTEXT"},
        java_options=[allowed],
    )
    knock = Knock(broker.port)
    log_in(knock, "admin")
    knock.close()
    return broker


def play(name: str, port: int, port_of_tokens: int) -> dict[str, Any]:
    """One corner: what was answered at each step."""
    knock = Knock(port_of_tokens if name in OF_TOKENS else port)
    try:
        CORNERS[name](knock)
    finally:
        knock.close()
    return knock.steps
