"""The generated messages: current, and SeaweedMQ's by name, number, type and label."""

from smq.agent.generate import FOLDER, generated
from tests.agent.seaweedmq import FIRST_OF_OURS, THEIRS, ours


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
