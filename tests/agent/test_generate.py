"""The generated messages: current, and SeaweedMQ's by name, number, type and label."""

import re
from pathlib import Path

from smq.agent.generate import FOLDER, generated
from tests.agent.seaweedmq import FIRST_OF_OURS, THEIRS, ours

DOCUMENT = Path(__file__).parents[2] / "docs" / "seaweedmq.md"


def test_the_generated_code_is_current() -> None:
    made = generated()
    assert made
    assert {each.name for each in FOLDER.glob("*_pb2.py*")} == made.keys()
    for name, content in made.items():
        assert (FOLDER / name).read_bytes() == content, f"{name}: python -m smq.agent.generate"


def test_every_name_number_type_and_label_is_seaweedmqs() -> None:
    assert sorted(ours() ^ THEIRS) == []


def test_smqs_own_fields_have_numbers_that_seaweedmq_leaves_free() -> None:
    more = {line for line in ours(with_extensions=True) - THEIRS if line.startswith("field ")}
    own_messages = ("messaging_pb.Header.", "messaging_pb.SubscribeRecordRequest.SeekMessage.")
    added = [line.split() for line in more if not line.split()[1].startswith(own_messages)]
    assert added
    assert all(int(number) >= FIRST_OF_OURS for _, _, number, *_ in added)


def test_smqs_own_fields_are_those_that_the_documentation_has() -> None:
    lines = (line.split() for line in ours(with_extensions=True) if line.startswith("field "))
    found = {
        (name.removeprefix("messaging_pb."), int(number), label, kind)
        for _, name, number, label, kind, _ in lines
        if int(number) >= FIRST_OF_OURS
    }
    once, header = "optional", ("repeated", "messaging_pb.Header")
    seek = "messaging_pb.SubscribeRecordRequest.SeekMessage"
    assert found == {
        ("DataMessage.offset", 1000, once, "int64"),
        ("DataMessage.headers", 1001, *header),
        ("DataMessage.sequence", 1002, once, "int64"),
        ("PublishMessageResponse.base_offset", 1000, once, "int64"),
        ("PublishMessageResponse.sequence", 1001, once, "int64"),
        ("SubscribeMessageRequest.AckMessage.nack", 1000, once, "bool"),
        ("SubscribeMessageRequest.AckMessage.offset", 1001, once, "int64"),
        ("PublishRecordRequest.sequence", 1000, once, "int64"),
        ("PublishRecordRequest.headers", 1001, *header),
        ("PublishRecordResponse.partition", 1000, once, "int32"),
        ("PublishRecordResponse.error_code", 1001, once, "int32"),
        ("PublishRecordResponse.sequence", 1002, once, "int64"),
        ("SubscribeRecordRequest.nack", 1000, once, "bool"),
        ("SubscribeRecordRequest.offset", 1001, once, "int64"),
        ("SubscribeRecordRequest.seek", 1002, once, seek),
        ("SubscribeRecordRequest.ack_partition", 1003, once, "int32"),
        ("SubscribeRecordResponse.partition", 1000, once, "int32"),
        ("SubscribeRecordResponse.headers", 1001, *header),
        ("SubscribeRecordResponse.delivery_count", 1002, once, "int32"),
    }
    _, _, table = DOCUMENT.read_text().partition("## Extensions")
    rows = re.findall(r"^\| ([\w.]+) \| (.+) \|$", table.partition("\n## ")[0], re.MULTILINE)
    documented = {
        (f"{message}.{field}", int(number))
        for message, fields in rows
        for field, number in re.findall(r"(\w+) (\d{4})", fields)
    }
    assert documented == {each[:2] for each in found}
