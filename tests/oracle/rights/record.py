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
from tests.oracle.rights.rows import Matrix, as_read, as_written, text
from tests.oracle.rights.stage import all_asked, play, start_kafka
from tests.oracle.stage import say
from tests.oracle.talk import snake

RECORDED = Path(__file__).parent / "recorded"


def path_of(api: str) -> Path:
    return RECORDED / f"{snake(api)}.json"


def recorded(dialogue: Asked) -> dict[int, Matrix]:
    """What Kafka answered, by version."""
    file = json.loads(path_of(dialogue.api).read_text())
    return as_read(file["dialogues"].get(dialogue.name, {}))


def record(part: str = "") -> None:
    """Record the dialogues whose names hold `part`."""
    files: dict[str, dict[str, Any]] = {}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, start_kafka(Path(directory)) as kafka:
        doors = Doors(kafka.port)
        for dialogue in all_asked().values():
            if part in dialogue.name:
                versions = {each: play(dialogue, each, doors) for each in dialogue.versions}
                files.setdefault(dialogue.api, {})[dialogue.name] = as_written(versions)
                say(f"{time.monotonic() - begun:5.0f} s: {dialogue.name}")
        doors.close()
    for api, dialogues in files.items():
        keeps = bool(part) and path_of(api).exists()
        kept = json.loads(path_of(api).read_text())["dialogues"] if keeps else {}
        content = {"kafka": KAFKA_VERSION, "dialogues": kept | dialogues}
        path_of(api).write_text(text(content) + "\n")


if __name__ == "__main__":
    record(*sys.argv[1:2])
