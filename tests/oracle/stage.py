"""Where dialogues are played: the brokers' settings, and the playing itself.

`python -m tests.oracle.stage kafka produce` plays the dialogues whose names hold `produce` and
prints the answers: the way to ask Apache Kafka a question.
"""

import importlib
import json
import pkgutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from smq.testing.kafka import Kafka
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.describe_groups import DescribeGroupsRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from tests.oracle import dialogues
from tests.oracle.dialogues import DIALOGUES, Dialogue
from tests.oracle.talk import Talk, starting

# The dialogues' records are of 2017; no retention may take them away while we talk.
SETTINGS = {"log.retention.ms": "-1", "num.partitions": "1"}
KAFKA_SETTINGS = SETTINGS | {"offsets.topic.num.partitions": "1"}


def all_dialogues() -> dict[str, Dialogue]:
    """Every dialogue there is, by name."""
    for module in pkgutil.iter_modules(dialogues.__path__):
        importlib.import_module(f"{dialogues.__name__}.{module.name}")
    return DIALOGUES


def start(name: str, directory: Path) -> Broker:
    """A broker that is past all 'not yet' of its first seconds."""
    broker = _start(name, directory)
    warm_up = Talk(broker.port, "warm-up", 0)
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    warm_up.until(init, lambda answer: not starting(answer), 4)
    find = FindCoordinatorRequest(coordinator_keys=["warm-up"], key_type=0)
    warm_up.until(find, lambda answer: not starting(answer.coordinators[0]), 2)
    describe = DescribeGroupsRequest(groups=["warm-up"])
    warm_up.until(describe, lambda answer: not starting(answer.groups[0]), 5)
    warm_up.close()
    return broker


def _start(name: str, directory: Path) -> Broker:
    if name == "kafka":
        return Kafka(directory, KAFKA_SETTINGS)
    return SmqBroker(directory, SETTINGS)


def play(dialogue: Dialogue, version: int, port: int) -> dict[str, Any]:
    """One dialogue in one version: what was answered at each step."""
    talk = Talk(port, dialogue.name, version)
    try:
        dialogue.script(talk)
    finally:
        talk.close()
    return talk.steps


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(name: str, part: str) -> None:
    with tempfile.TemporaryDirectory() as directory, start(name, Path(directory)) as broker:
        for dialogue in all_dialogues().values():
            for version in dialogue.versions if part in dialogue.name else ():
                say(f"{dialogue.name} v{version}")
                try:
                    steps = play(dialogue, version, broker.port)
                except (AssertionError, AttributeError):
                    traceback.print_exc(file=sys.stdout)
                    continue
                for step, answer in steps.items():
                    say(f"  {step}: {json.dumps(answer)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
