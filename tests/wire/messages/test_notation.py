"""Lines of the tables, parsed."""

import pytest

from smq.wire.messages.notation import in_newer_places, parse_apis

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


def test_a_field_may_be_replaced_by_one_that_newer_versions_have_elsewhere() -> None:
    table = """
FindCoordinator 10 versions 0-6 flexible 3+
    FindCoordinatorRequest
        key                 string          0-3  >coordinator_keys
        host                string          0-3
            >coordinators.host
        coordinator_keys    []string        4+
"""
    [api] = parse_apis(table)
    key, host, keys = api.messages["FindCoordinatorRequest"].fields
    assert key.replaced_by == key.path == ("coordinator_keys",)
    assert host.path == ("coordinators", "host")
    assert (keys.replaced_by, keys.path) == ((), ("coordinator_keys",))


def test_replaced_fields_are_found_where_newer_versions_have_them() -> None:
    table = """
DeleteTopics 20 versions 0-9 flexible 10+
    DeleteTopicsRequest
        names       []string    0-5  >topics.name
        row         int32       0-3  >rows.a
        key         string      0-4  >keys
        topics      []Topic     6+
            name    string?
            id      uuid
        rows        []Row       4+
            a       int32
            b       int32
        keys        []string    5+
        always      int8
"""
    [api] = parse_apis(table)
    fields = api.messages["DeleteTopicsRequest"].fields
    old = {each.name: each for each in in_newer_places(fields, 3)}
    assert list(old) == ["always", "topics", "rows", "keys"]
    assert [old[name].is_single for name in ("topics", "rows", "keys")] == [False, True, True]
    [name], [a] = old["topics"].fields, old["rows"].fields
    assert (name.name, name.is_array, name.nullable, a.name) == ("name", False, range(0), "a")
    assert in_newer_places(fields, 9) == [each for each in fields if 9 in each.versions]


@pytest.mark.parametrize(
    "line", ["Fetch 1 versions 4", "   x int32", "        x int33x7", "        x"]
)
def test_a_line_that_cannot_be_read_is_our_bug(line: str) -> None:
    with pytest.raises(AssertionError):
        parse_apis(f"Fetch 1 versions 4-18 flexible 12+\n    FetchRequest\n{line}")
