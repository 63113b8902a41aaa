"""Ask Apache Kafka afresh what is answered around a login: `make record-login`."""

import json
import tempfile
from pathlib import Path
from typing import Any

from smq.testing.kafka import KAFKA_VERSION
from tests.oracle.login.corners import CORNERS
from tests.oracle.login.stage import play, start_kafka
from tests.oracle.stage import say

RECORDED = Path(__file__).parent / "recorded.json"


def recorded() -> dict[str, dict[str, Any]]:
    """What Kafka answered, by corner and step."""
    corners: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())["corners"]
    return corners


def text(corners: dict[str, dict[str, Any]]) -> str:
    """The file: a line for each step."""
    lines = []
    for name, steps in corners.items():
        rows = (f"   {json.dumps(step)}: {json.dumps(each)}" for step, each in steps.items())
        lines.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n  }")
    inner = ",\n".join(lines)
    return f'{{\n "kafka": "{KAFKA_VERSION}",\n "corners": {{\n{inner}\n }}\n}}\n'


def record() -> None:
    with tempfile.TemporaryDirectory() as directory, start_kafka(Path(directory)) as kafka:
        corners = {}
        for name in CORNERS:
            corners[name] = play(name, kafka.port)
            say(name)
    RECORDED.write_text(text(corners))


if __name__ == "__main__":
    record()
