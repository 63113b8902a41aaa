"""The conformance suite of stores: subclass StoreTests and give it a `store` fixture.

The suite runs on each store and on each faulty wrapper (`smq.testing.faulty_store`); the model in
its property test is a dict.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from smq.filer.store import CREATE, KEY_PART_BYTES_MAX, OVERWRITE, IfMatch, Store
from smq.model.errors import AlreadyExists, NotFound, PreconditionFailed, StoreError

BAD_KEYS = (
    "",
    "/",
    "/etc/passwd",
    "a//b",
    "a/",
    "..",
    "a/../b",
    "../a",
    "./a",
    ".hidden",
    ".unfinished/b",
    "a/.",
    "a\0b",
    "a\nb",
    "a\\b",
    "a/" + "x" * (KEY_PART_BYTES_MAX + 1),
    "/".join(["x" * 100] * 11),
)

_keys = st.from_regex(r"\A[ab-]{1,2}/[ab.]?[ab]\Z").filter(lambda key: "/." not in key)
_steps = st.lists(
    st.tuples(st.sampled_from(["create", "overwrite", "delete"]), _keys, st.binary(max_size=9)),
    max_size=12,
)


class StoreTests:
    """The conformance suite."""

    def test_what_was_put_is_there_with_its_facts(self, store: Store) -> None:
        facts = store.put("a/b/c.bin", b"hello")
        assert store.get("a/b/c.bin") == b"hello"
        assert store.head("a/b/c.bin") == facts
        assert (facts.key, facts.length) == ("a/b/c.bin", 5)

    def test_a_range_is_cut_to_what_exists(self, store: Store) -> None:
        store.put("a/b", b"0123456789")
        assert store.get("a/b", 3, 4) == b"3456"
        assert store.get("a/b", 8, 100) == b"89"
        assert store.get("a/b", 7) == b"789"
        assert store.get("a/b", 20, 5) == b""
        assert store.get("a/b", 0, 0) == b""

    def test_a_read_in_pieces_gives_the_same_bytes_and_tells_the_version(
        self, store: Store
    ) -> None:
        data = bytes(range(256)) * 4099  # More than a piece of any store.
        facts = store.put("a/b", data)
        for start, length in ((0, None), (1, None), (7, 700_001), (len(data) - 1, 100), (5, 0)):
            with store.reading("a/b", start, length) as reading:
                assert reading.facts == facts
                assert b"".join(reading.pieces) == store.get("a/b", start, length)
        with store.reading("a/b", len(data) + 1) as reading:
            assert b"".join(reading.pieces) == b""
        with pytest.raises(NotFound), store.reading("a/c"):
            pass

    def test_create_never_replaces(self, store: Store) -> None:
        store.put("a/b", b"first")
        with pytest.raises(AlreadyExists):
            store.put("a/b", b"second", CREATE)
        assert store.get("a/b") == b"first"

    def test_overwrite_replaces_and_changes_the_version(self, store: Store) -> None:
        versions = {store.put("a/b", bytes([i]), OVERWRITE).version for i in range(50)}
        assert len(versions) == 50
        assert store.get("a/b") == bytes([49])

    def test_if_match_writes_over_that_version_only(self, store: Store) -> None:
        first = store.put("a/b", b"1").version
        second = store.put("a/b", b"2", IfMatch(first)).version
        with pytest.raises(PreconditionFailed):
            store.put("a/b", b"3", IfMatch(first))
        assert store.get("a/b") == b"2"
        store.put("a/b", b"4", IfMatch(second))
        assert store.get("a/b") == b"4"

    def test_if_match_does_not_create(self, store: Store) -> None:
        version = store.put("a/b", b"1").version
        store.delete("a/b")
        with pytest.raises(PreconditionFailed):
            store.put("a/b", b"2", IfMatch(version))

    def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        store.put("a/b", b"x")
        for key in ("missing", "a", "a/b/c", "z/y/x"):
            with pytest.raises(NotFound):
                store.get(key)
            with pytest.raises(NotFound):
                store.head(key)

    def test_delete_removes_and_may_be_repeated(self, store: Store) -> None:
        store.put("a/b", b"x")
        store.delete("a/b")
        store.delete("a/b")
        store.delete("never/there")
        with pytest.raises(NotFound):
            store.get("a/b")
        assert list(store.list()) == []

    def test_a_stream_is_seen_when_its_block_ends(self, store: Store) -> None:
        with store.writing("a/b") as sink:
            assert sink.write(b"abc") == 3
            sink.write(memoryview(b"def"))
            assert list(store.list()) == []
        assert store.get("a/b") == b"abcdef"

    def test_a_stream_that_fails_leaves_nothing(self, store: Store) -> None:
        with pytest.raises(ConnectionError):
            _write(store, "a/b", _lose_the_connection)
        assert list(store.list()) == []
        with pytest.raises(NotFound):
            store.get("a/b")

    def test_of_two_streams_that_create_one_wins(self, store: Store) -> None:
        with pytest.raises(AlreadyExists):
            _write(store, "a/b", lambda: store.put("a/b", b"early"))
        assert store.get("a/b") == b"early"

    def test_the_list_is_in_order_and_starts_after(self, store: Store) -> None:
        keys = ["a-b", "a/b", "a/b-c/d", "a/b.c", "a0", "b/a/c"]
        for key in reversed(keys):
            store.put(key, key.encode())
        assert [facts.key for facts in store.list()] == sorted(keys)
        assert [facts.key for facts in store.list("a/")] == ["a/b", "a/b-c/d", "a/b.c"]
        assert [facts.key for facts in store.list("a/b-")] == ["a/b-c/d"]
        assert [facts.key for facts in store.list(after="a/b-c/d")] == ["a/b.c", "a0", "b/a/c"]
        assert [facts.key for facts in store.list("a", "a/b.c")] == ["a0"]
        assert list(store.list("no")) == []

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_key_names_nothing_outside(self, store: Store, key: str) -> None:
        for call in (store.get, store.head, store.delete, store.local_path):
            with pytest.raises(StoreError):
                call(key)
        with pytest.raises(StoreError):
            store.put(key, b"x", OVERWRITE)

    @pytest.mark.parametrize(
        "key", ["a/.hidden/b", "a/..b", "a/" + "x" * KEY_PART_BYTES_MAX, "ä/ö"]
    )
    def test_a_key_may_be_anything_else(self, store: Store, key: str) -> None:
        store.put(key, b"x")
        assert [facts.key for facts in store.list()] == [key]

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        store.put("a/empty", b"")
        assert store.get("a/empty") == b""
        assert store.head("a/empty").length == 0

    def test_local_paths_hold_the_objects_bytes(self, store: Store) -> None:
        store.put("a/b", b"hello")
        path = store.local_path("a/b")
        assert (path is not None) == store.capabilities.local_paths
        assert path is None or path.read_bytes() == b"hello"

    def test_it_behaves_like_a_dict(self, store: Store) -> None:
        @settings(max_examples=40, deadline=None)
        @given(_steps)
        def behaves(steps: list[tuple[str, str, bytes]]) -> None:
            for facts in list(store.list()):
                store.delete(facts.key)
            expected = _model_after(store, steps)
            assert _contents(store) == expected

        behaves()


def _contents(store: Store) -> list[tuple[str, bytes]]:
    return [(facts.key, store.get(facts.key)) for facts in store.list()]


def _model_after(store: Store, steps: list[tuple[str, str, bytes]]) -> list[tuple[str, bytes]]:
    """Take the steps on the store and on a dict; returns the dict's items, in order."""
    model: dict[str, bytes] = {}
    for step, key, data in steps:
        if step == "delete":
            store.delete(key)
            model.pop(key, None)
        elif step == "create" and key in model:
            with pytest.raises(AlreadyExists):
                store.put(key, data)
        else:
            store.put(key, data, CREATE if step == "create" else OVERWRITE)
            model[key] = data
    return sorted(model.items())


def _write(store: Store, key: str, then: Callable[[], object]) -> None:
    with store.writing(key) as sink:
        sink.write(b"late")
        then()


def _lose_the_connection() -> None:
    raise ConnectionError
