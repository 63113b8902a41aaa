"""Ask Apache Kafka afresh what is answered around a login: `make record-login`."""

import json
import tempfile
from pathlib import Path
from typing import Any

from smq.testing.kafka import KAFKA_VERSION
from tests.oracle.login.corners import CORNERS
from tests.oracle.login.stage import TOKENS, play, start_kafka
from tests.oracle.rights import rows
from tests.oracle.stage import say

RECORDED = Path(__file__).parent / "recorded.json"


def recorded() -> dict[str, dict[str, Any]]:
    """What Kafka answered, by corner and step."""
    corners: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())["corners"]
    return corners


def text(corners: dict[str, dict[str, Any]]) -> str:
    """The file: a line for each step."""
    return rows.text({"kafka": KAFKA_VERSION, "corners": corners}, rows.STEPS_DEPTH) + "\n"


def record() -> None:
    with tempfile.TemporaryDirectory() as directory, start_kafka(Path(directory)) as kafka:
        corners = {}
        for name in CORNERS:
            corners[name] = play(name, kafka.port, kafka.port_of(TOKENS))
            say(name)
    RECORDED.write_text(text(corners))


if __name__ == "__main__":
    record()
