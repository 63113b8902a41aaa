"""Lines of the tables, parsed."""

import pytest

from smq.wire.messages.notation import parse_apis

TABLE = """
Fetch 1 versions 4-18 flexible 12+
    FetchRequest
        rack                string?7-9      5+    =null tag=0
        topics              []FetchTopic?
            topic           string          4-12
            partitions      []int32         =-1
        wait                int32           8
    FetchResponse
        throttle            int32
"""


def test_a_table_gives_apis_messages_and_fields() -> None:
    (api,) = parse_apis(TABLE)
    assert (api.name, api.key, api.versions, api.flexible_from) == ("Fetch", 1, range(4, 19), 12)
    assert list(api.messages) == ["FetchRequest", "FetchResponse"]
    rack, topics, wait = api.messages["FetchRequest"].fields
    assert (rack.nullable, rack.versions) == (range(7, 10), range(5, 19))
    assert (rack.default, rack.tag) == ("null", 0)
    assert (topics.is_array, topics.type, topics.nullable) == (True, "FetchTopic", range(4, 19))
    assert wait.versions == range(8, 9)
    topic, partitions = topics.fields
    assert topic.versions == range(4, 13)
    assert (partitions.is_array, partitions.type, partitions.default) == (True, "int32", "-1")
    assert topic.fields == []


@pytest.mark.parametrize(
    "line", ["Fetch 1 versions 4", "   x int32", "        x int33x7", "        x"]
)
def test_a_line_that_cannot_be_read_is_our_bug(line: str) -> None:
    with pytest.raises(AssertionError):
        parse_apis(f"Fetch 1 versions 4-18 flexible 12+\n    FetchRequest\n{line}")
