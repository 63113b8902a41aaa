"""Where the corners are played: a broker with some users and three mechanisms.

A session of SCRAM-SHA-256 has a lifetime, those of the others have none.
"""

from pathlib import Path
from typing import Any

from smq.testing.kafka import Kafka
from tests.oracle.login.corners import CORNERS, PLAIN, SHA_256, SHA_512
from tests.oracle.login.knock import Knock, log_in
from tests.oracle.rights.login import password
from tests.oracle.stage import KAFKA_SETTINGS

USERS = ("admin", "alice", "bob")
LIFETIME_MS = 2000
_MODULES = "org.apache.kafka.common.security"
_LISTENER = "listener.name.plaintext"


def kafka_settings() -> dict[str, str]:
    users = "".join(f' user_{name}="{password(name)}"' for name in USERS)
    plain = f'{_MODULES}.plain.PlainLoginModule required username="admin" '
    plain += f'password="{password("admin")}"{users};'
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return KAFKA_SETTINGS | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        f"{_LISTENER}.sasl.enabled.mechanisms": f"{PLAIN},{SHA_256},{SHA_512}",
        f"{_LISTENER}.plain.sasl.jaas.config": plain,
        f"{_LISTENER}.scram-sha-256.sasl.jaas.config": scram,
        f"{_LISTENER}.scram-sha-512.sasl.jaas.config": scram,
        f"{_LISTENER}.scram-sha-256.connections.max.reauth.ms": str(LIFETIME_MS),
    }


def start_kafka(directory: Path) -> Kafka:
    """Without an authorizer: who may what is another matter."""
    options = []
    for user in USERS:
        for mechanism in (SHA_256, SHA_512):
            credential = f"[name={user},password={password(user)},iterations=4096]"
            options += ["--add-scram", f"{mechanism}={credential}"]
    broker = Kafka(directory, kafka_settings(), options)
    knock = Knock(broker.port)
    log_in(knock, "admin")
    knock.close()
    return broker


def play(name: str, port: int) -> dict[str, Any]:
    """One corner: what was answered at each step."""
    knock = Knock(port)
    try:
        CORNERS[name](knock)
    finally:
        knock.close()
    return knock.steps
