"""Where the matrix is played: a broker with an authorizer, and the playing itself.

`python -m tests.oracle.rights.stage kafka produce` plays the dialogues whose names hold `produce`
and prints who was answered what: the way to ask Apache Kafka a question about rights.
"""

import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from smq.security.acls import Operation, PatternType, Permission, ResourceType
from smq.testing.kafka import Kafka
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest
from smq.wire.generated.describe_groups import DescribeGroupsRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from tests.oracle.rights import ASKED, Asked
from tests.oracle.rights.cell import EXISTING, Cell, Doors
from tests.oracle.rights.login import password
from tests.oracle.rights.principals import ADMIN, PRINCIPALS, lasting_rules, rules_of_dialogue
from tests.oracle.rights.rows import Matrix, as_written, text
from tests.oracle.stage import KAFKA_SETTINGS, say
from tests.oracle.talk import starting

SUPER_USERS = "User:admin;User:super"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_GROUPS, _TRANSACTIONS = 0, 1
_CREATE, _DESCRIBE, _DELETE = 3, 3, 3  # Versions of what is only needed beforehand.


def all_asked() -> dict[str, Asked]:
    """Every dialogue of the matrix, by name."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent / "questions")]):
        importlib.import_module(f"tests.oracle.rights.questions.{module.name}")
    return ASKED


def kafka_settings() -> dict[str, str]:
    """Everybody logs in by PLAIN; only the controller, on a port of its own, needs nobody to."""
    users = "".join(f' user_{name}="{password(name)}"' for name in (ADMIN, *PRINCIPALS))
    login = f'{_PLAIN} username="{ADMIN}" password="{password(ADMIN)}"{users};'
    return KAFKA_SETTINGS | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": login,
        "inter.broker.listener.name": "PLAINTEXT",  # Else markers are sent without a login.
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "authorizer.class.name": _AUTHORIZER,
        "broker.session.timeout.ms": "120000",  # On a busy machine nine seconds pass at once.
        "super.users": f"{SUPER_USERS};User:ANONYMOUS",
    }


def start_kafka(directory: Path) -> Kafka:
    broker = Kafka(directory, kafka_settings())
    ready(broker.port)
    return broker


def ready(port: int) -> None:
    """Wait until it is past all 'not yet' of its first seconds, and give everybody their rules."""
    doors = Doors(port)
    admin = Cell(port, "rights-warm-up", 0, doors=doors)
    for kind in (_GROUPS, _TRANSACTIONS):
        find = FindCoordinatorRequest(coordinator_keys=["warm-up"], key_type=kind)
        admin.until(find, lambda answer: not starting(answer.coordinators[0]), 2)
    init = InitProducerIdRequest(transactional_id="warm-up", transaction_timeout_ms=1000)
    admin.until(init, lambda answer: not starting(answer), 4)
    describe = DescribeGroupsRequest(groups=["warm-up"])
    admin.until(describe, lambda answer: not starting(answer.groups[0]), 5)
    add_rules(admin, lasting_rules())
    doors.close()


def play(dialogue: Asked, version: int, doors: Doors) -> Matrix:
    """One dialogue in one version, by every principal."""
    admin = Cell(doors.port, dialogue.name, version, doors=doors)
    make_topics(admin)
    dialogue.prepare(admin)
    rules = rules_of_dialogue(admin.own())
    add_rules(admin, rules)
    matrix: Matrix = {}
    for turn, principal in enumerate(PRINCIPALS):
        cell = Cell(
            doors.port, dialogue.name, version,
            doors=doors, principal=principal, turn=turn, ids=admin.ids,
        )  # fmt: skip
        cell.name_ids()
        dialogue.script(cell)
        cell.close()
        matrix[principal] = cell.steps
    remove_rules(admin, rules)
    return matrix


def make_topics(admin: Cell) -> None:
    """Those that exist, at once; then wait until each can be used."""
    topics = [
        CreatableTopic(name=admin.own(word), num_partitions=1, replication_factor=1)
        for word in EXISTING
    ]
    answer = admin.quietly(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    assert not any(each.error_code for each in answer.topics), answer
    for word in EXISTING:
        admin.settle(admin.own(word))
    admin.know_ids()


def add_rules(admin: Cell, rules: list[AclCreation]) -> None:
    answer = admin.quietly(CreateAclsRequest(creations=rules), _CREATE)
    assert not any(each.error_code for each in answer.results), answer
    names = {each.resource_name for each in rules}
    every = DescribeAclsRequest(**_EVERY_RULE)
    admin.until(every, lambda answer: names <= _named(answer), _DESCRIBE)


def remove_rules(admin: Cell, rules: list[AclCreation]) -> None:
    names = dict.fromkeys(each.resource_name for each in rules)
    filters = [DeleteAclsFilter(**(_EVERY_RULE | {"resource_name_filter": name})) for name in names]
    answer = admin.quietly(DeleteAclsRequest(filters=filters), _DELETE)
    assert not any(each.error_code for each in answer.filter_results), answer


_EVERY_RULE: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def _named(answer: Any) -> set[str]:
    return {each.resource_name for each in answer.resources}


def main(part: str) -> None:
    with tempfile.TemporaryDirectory() as directory, start_kafka(Path(directory)) as broker:
        doors = Doors(broker.port)
        for dialogue in all_asked().values():
            if part in dialogue.name:
                versions = {each: play(dialogue, each, doors) for each in dialogue.versions}
                say(text({"dialogues": {dialogue.name: as_written(versions)}}))
        doors.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
