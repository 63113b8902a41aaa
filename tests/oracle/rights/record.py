"""Play the matrix with Apache Kafka and record its answers: `make record-rights`.

With PART=words only dialogues whose names hold these words are played; the others stay. One file
an API, as `rows.py` writes it.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from smq.testing.kafka import KAFKA_VERSION
from tests.oracle.rights import Asked
from tests.oracle.rights.cell import Doors
from tests.oracle.rights.changes import CHANGES, play as play_change
from tests.oracle.rights.rows import STEPS_DEPTH, Matrix, as_read, as_written, text
from tests.oracle.rights.stage import all_asked, play, start_kafka
from tests.oracle.stage import say
from tests.oracle.talk import snake

RECORDED = Path(__file__).parent / "recorded"
CHANGES_RECORDED = Path(__file__).parent / "changes.json"
CHANGES_NAME = "rights-changes"


def path_of(api: str) -> Path:
    return RECORDED / f"{snake(api)}.json"


def recorded(dialogue: Asked) -> dict[int, Matrix]:
    """What Kafka answered, by version."""
    file = json.loads(path_of(dialogue.api).read_text())
    return as_read(file["dialogues"].get(dialogue.name, {}))


def record(part: str = "") -> None:
    """Record the dialogues whose names hold `part`, each as soon as it was played."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, start_kafka(Path(directory)) as kafka:
        doors = Doors(kafka.port)
        for dialogue in all_asked().values():
            if part in dialogue.name:
                versions = {each: play(dialogue, each, doors) for each in dialogue.versions}
                keep(dialogue, as_written(versions))
                say(f"{time.monotonic() - begun:5.0f} s: {dialogue.name}")
        if part in CHANGES_NAME:
            changed = {name: play_change(name, doors) for name in CHANGES}
            CHANGES_RECORDED.write_text(changes_text(changed))
            say(CHANGES_NAME)
        doors.close()


def changes_text(changed: dict[str, Any]) -> str:
    return text({"kafka": KAFKA_VERSION, "changes": changed}, STEPS_DEPTH) + "\n"


def recorded_changes() -> dict[str, Any]:
    """What Kafka answered when rights changed, by scenario and step."""
    changed: dict[str, Any] = json.loads(CHANGES_RECORDED.read_text())["changes"]
    return changed


def keep(dialogue: Asked, written: dict[str, Any]) -> None:
    """Write one dialogue into its API's file, where those that are no more are forgotten."""
    path = path_of(dialogue.api)
    kept = json.loads(path.read_text())["dialogues"] if path.exists() else {}
    kept[dialogue.name] = written
    dialogues = {name: kept[name] for name in all_asked() if name in kept}
    path.write_text(text({"kafka": KAFKA_VERSION, "dialogues": dialogues}) + "\n")


if __name__ == "__main__":
    record(*sys.argv[1:2])
