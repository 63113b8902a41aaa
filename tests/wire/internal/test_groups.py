"""Members of held groups, as the agent names them to the coordinator."""

from smq.wire.internal.form import decode_answer, decode_question, encode_answer, encode_question
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.groups import GroupHeld, HeldGroup, HeldRow, HoldGroups
from smq.wire.internal.messages import FOR_COORDINATOR


def test_members_arrive_as_they_were_named() -> None:
    rows = [HeldRow("a-1", "client", "/10.0.0.7", '["a"]', "\x00\xff")]
    question = HoldGroups(10_000, [HeldGroup("g", -1, rows, ["b"])])
    [frame] = InternalReader().receive(encode_question(1, question))
    assert decode_question(frame.body, FOR_COORDINATOR) == question


def test_the_partitions_of_members_before_come_back() -> None:
    held = [GroupHeld(0, 3, [('["a"]', "\x00\xff")]), GroupHeld(23, -1, [])]
    [frame] = InternalReader().receive(encode_answer(1, held))
    assert decode_answer(HoldGroups, frame.body) == held
