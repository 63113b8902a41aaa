"""Requests in portions: together they are the request, and none is large."""

from random import Random
from typing import Any

import pytest

from smq.testing.messages import codec_module, random_message
from smq.wire.codec import Malformed, Message, Writer
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from smq.wire.messages.notation import Api
from smq.wire.messages.tables import APIS
from smq.wire.portions import NESTED_MAX, Path, Portion, RequestReader, request_structure
from smq.wire.structure_code import snake

NAMED = ("topics", "partitions")
GROUPED = ("groups", "topics", "partition_indexes")
BY_NAME = {api.name: api for api in APIS}
CUT = {
    "Fetch": NAMED,
    "OffsetCommit": NAMED,
    "Metadata": ("topics",),
    "OffsetFetch": GROUPED,
    "AddPartitionsToTxn": ("transactions", "topics", "partitions"),
}


def written(api: Api, message: Message, version: int) -> bytes:
    writer = Writer()
    getattr(codec_module(api), f"write_{snake(api.name)}_request")(message, version, writer)
    return writer.to_bytes()


def reader(name: str, version: int, data: bytes, path: Path, most: int = 10**6) -> RequestReader:
    api = BY_NAME[name]
    structure = request_structure(codec_module(api), api.key, version)
    return RequestReader(structure, data, 0, path, most)


def portions(name: str, version: int, data: bytes, path: Path, size: int) -> list[Portion]:
    each = reader(name, version, data, path)
    for _ in each.check():
        pass
    return list(each.portions(size))


def rows(message: Any, path: Path) -> list[Any]:
    """The elements at the end of a path, each with what it lies in, but for arrays."""
    found = getattr(message, path[0])
    if found is None or len(path) == 1:
        return [found] if found is None else list(found)
    said = []
    for outer in found:
        names = [name for name in type(outer).__slots__ if name != path[1]]
        head = tuple(getattr(outer, name) for name in names)
        said += [(head, row) for row in rows(outer, path[1:])]
    return said


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_portions_hold_all_rows_in_order_and_none_holds_more(name: str, size: int) -> None:
    api, path, random = BY_NAME[name], CUT[name], Random(7)
    for version in api.versions:
        for _ in range(5):
            message = random_message(random, api, f"{name}Request", version)
            data = written(api, message, version)
            found = portions(name, version, data, path, size)
            assert [r for each in found for r in rows(each.message, path)] == rows(message, path)
            for portion in found:
                assert len(rows(portion.message, path)) <= size
                for field in type(message).__slots__:
                    is_array = field in {path[0], "forgotten_topics_data"}
                    same = getattr(portion.message, field) == getattr(message, field)
                    assert is_array or same


def test_a_portion_that_begins_within_an_outer_element_continues_it() -> None:
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=range(5))]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    data = written(BY_NAME["OffsetFetch"], OffsetFetchRequest(groups=groups), 9)
    found = portions("OffsetFetch", 9, data, GROUPED, 4)
    assert [each.continues for each in found] == [False, True]
    assert [rows(each.message, GROUPED)[0][0] == ("g", None, -1) for each in found] == [True, True]


def test_more_elements_than_may_be_are_malformed_before_they_are_objects() -> None:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=())] * 11
    data = written(BY_NAME["OffsetFetch"], OffsetFetchRequest(groups=groups), 9)
    for _ in reader("OffsetFetch", 9, data, GROUPED, 11).check():
        pass
    with pytest.raises(Malformed, match="more than 10 elements"):
        list(reader("OffsetFetch", 9, data, GROUPED, 10).check())


def test_an_element_that_is_not_cut_holds_few_others() -> None:
    fetch = codec_module(BY_NAME["Fetch"])
    for count, refused in ((NESTED_MAX, False), (NESTED_MAX + 1, True)):
        forgotten = [fetch.ForgottenTopic(partitions=range(count))]
        message = fetch.FetchRequest(forgotten_topics_data=forgotten)
        data = written(BY_NAME["Fetch"], message, 12)
        each = reader("Fetch", 12, data, NAMED)
        if refused:
            with pytest.raises(Malformed, match="more than"):
                list(each.check())
        else:
            list(each.check())
            assert each.elements == count + 1


@pytest.mark.parametrize("name", CUT)
def test_a_truncated_request_raises_malformed(name: str) -> None:
    api, random = BY_NAME[name], Random(8)
    version = api.versions[-1]
    data = written(api, random_message(random, api, f"{name}Request", version), version)
    for end in range(len(data)):
        with pytest.raises(Malformed):
            list(reader(name, version, data[:end], CUT[name]).check())


def test_a_long_request_gives_others_their_turn_while_it_is_read() -> None:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=())] * 2000
    data = written(BY_NAME["OffsetFetch"], OffsetFetchRequest(groups=groups), 9)
    assert len(list(reader("OffsetFetch", 9, data, GROUPED).check())) >= 3
