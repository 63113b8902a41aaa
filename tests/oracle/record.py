"""Play every dialogue with Apache Kafka and record its answers: `make record-oracle`.

With PART=words only dialogues whose names hold these words are played; the others stay.

One file an API: dialogue, version, step, answer. Steps that were answered alike in the version
before are not written again, so that a file shows where versions differ.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from smq.testing.kafka import KAFKA_VERSION
from tests.oracle.dialogues import Dialogue
from tests.oracle.stage import all_dialogues, play, say, start
from tests.oracle.talk import snake

RECORDED = Path(__file__).parent / "recorded"
Steps = dict[str, Any]
_AS_BEFORE = "as before"


def path_of(api: str) -> Path:
    return RECORDED / f"{snake(api)}.json"


def recorded(dialogue: Dialogue) -> dict[int, Steps]:
    """What Kafka answered, by version."""
    file = json.loads(path_of(dialogue.api).read_text())
    versions: dict[int, Steps] = {}
    before: Steps = {}
    for version, written in file["dialogues"].get(dialogue.name, {}).items():
        steps = {
            step: before[step] if answer == _AS_BEFORE else answer
            for step, answer in written.items()
        }
        versions[int(version)] = before = steps
    return versions


def as_written(versions: dict[int, Steps]) -> dict[str, Steps]:
    """The inverse of `recorded`, for one dialogue."""
    written: dict[str, Steps] = {}
    before: Steps = {}
    for version, steps in versions.items():
        written[str(version)] = {
            step: _AS_BEFORE if step in before and before[step] == answer else answer
            for step, answer in steps.items()
        }
        before = steps
    return written


def record(part: str = "") -> None:
    """Record the dialogues whose names hold `part`."""
    files: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory, start("kafka", Path(directory)) as kafka:
        for dialogue in all_dialogues().values():
            if part not in dialogue.name:
                continue
            versions = {
                version: play(dialogue, version, kafka.port) for version in dialogue.versions
            }
            files.setdefault(dialogue.api, {})[dialogue.name] = as_written(versions)
            say(f"{dialogue.name}: {sum(map(len, versions.values()))} answers")
    for api, dialogues in files.items():
        keeps = bool(part) and path_of(api).exists()
        kept = json.loads(path_of(api).read_text())["dialogues"] if keeps else {}
        content = {"kafka": KAFKA_VERSION, "dialogues": kept | dialogues}
        path_of(api).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    record(*sys.argv[1:2])
