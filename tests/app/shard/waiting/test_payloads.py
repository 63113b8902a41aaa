"""A shard's view of the filer: immediate on this host, delayed for a remote store."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from smq.app.shard.waiting.payloads import (
    KEYS_MAX,
    KNOWN_MAX,
    KNOWN_MS,
    WANTED_MAX,
    AskedPayloads,
    LocalPayloads,
    payloads_of,
)
from smq.filer.local import LocalStore
from smq.model.config import Config
from smq.model.setting import PathOrUrl
from smq.shard.references import LATER_MAX, NotYetKnown, PayloadFacts
from smq.testing.payloads import uploaded
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import FindPayloads

if TYPE_CHECKING:
    from smq.app.process.peers import Peers


def test_on_this_host_a_payload_is_a_file(tmp_path: Path) -> None:
    store, payloads = LocalStore(tmp_path), LocalPayloads(str(tmp_path))
    key = uploaded(store, "images", b"payload").key("images")
    assert payloads.look(key) == PayloadFacts(7, store.head(key).modified_ms)
    for other in (key + "0", "payloads/kafka/other/x", f"{key}/below", "payloads/kafka/images"):
        assert payloads.look(other) is None


def test_where_the_filer_cannot_be_looked_at_the_producer_is_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(NotYetKnown):
        LocalPayloads(str(tmp_path)).look("x" * 5000)


class FakeSealer:
    """Notes what it is asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], Callable[[Any], None]]] = []

    def ask_sealer(self, question: FindPayloads, answered: Callable[[Any], None]) -> None:
        self.asked.append((question.keys, answered))

    def answer(self, seen: tuple[int, int] | None) -> list[str]:
        """Say the same of all that is asked for; what that was."""
        keys, answered = self.asked.pop()
        answered(dict.fromkeys(keys, seen))
        return keys

    def fail(self) -> None:
        self.asked.pop()[1](Failed("as the test wants it"))


class Bench:
    def __init__(self) -> None:
        self.sealer, self.now_ms = FakeSealer(), 0
        self.payloads = AskedPayloads(cast("Peers", self.sealer), lambda: self.now_ms)

    def is_later(self, key: str = "a") -> bool:
        try:
            self.payloads.look(key)
        except NotYetKnown:
            return True
        return False

    def later(self, count: int) -> int:
        """How many of so many are asked for."""
        return sum(self.is_later(str(number)) for number in range(count))


def test_elsewhere_it_is_asked_for_once_and_known_for_a_while() -> None:
    bench = Bench()
    assert bench.is_later()
    assert bench.is_later()
    assert [keys for keys, _ in bench.sealer.asked] == [["a"]]
    bench.sealer.answer((7, 1000))
    assert bench.payloads.look("a") == PayloadFacts(7, 1000)
    bench.now_ms = KNOWN_MS - 1
    assert not bench.is_later()
    bench.now_ms = KNOWN_MS
    assert bench.is_later()


def test_a_missing_payload_is_reported_once_and_asked_for_again() -> None:
    bench = Bench()
    assert bench.is_later()
    bench.sealer.answer(None)
    assert bench.payloads.look("a") is None
    assert bench.is_later()


def test_a_sealer_that_cannot_say_is_asked_again() -> None:
    bench = Bench()
    assert bench.is_later()
    assert bench.is_later("b")
    bench.sealer.fail()
    assert not bench.sealer.asked
    assert bench.is_later()
    assert bench.sealer.answer((7, 1000)) == ["a"]


def test_a_payload_missing_in_the_sealers_answer_is_asked_for_again() -> None:
    bench = Bench()
    assert bench.later(3) == 3
    bench.sealer.answer((7, 1000))
    _, answered = bench.sealer.asked.pop()
    answered({"1": (7, 1000)})
    assert bench.later(3) == 1


def test_payloads_wanted_during_a_question_are_asked_for_together() -> None:
    bench = Bench()
    assert bench.later(KEYS_MAX + 2) == KEYS_MAX + 2
    asked = [bench.sealer.answer((7, 1000)) for _ in range(3)]
    assert [len(keys) for keys in asked] == [1, KEYS_MAX, 1]
    assert not bench.sealer.asked
    assert bench.later(KEYS_MAX + 2) == 0


def test_the_largest_batch_is_known_as_a_whole_soon() -> None:
    bench, rounds = Bench(), 0
    while bench.later(LATER_MAX):
        while bench.sealer.asked:
            bench.sealer.answer((7, 1000))
        rounds += 1
        bench.now_ms += 1000
    assert rounds <= LATER_MAX // WANTED_MAX


def test_no_more_are_wanted_at_a_time_than_it_takes() -> None:
    bench = Bench()
    bench.later(2 * WANTED_MAX)
    asked = 0
    while bench.sealer.asked:
        asked += len(bench.sealer.answer((7, 1000)))
    assert asked == WANTED_MAX


def test_it_does_not_remember_without_end() -> None:
    bench = Bench()
    for number in range(KNOWN_MAX + 1):
        assert bench.is_later(str(number))
        bench.sealer.answer((7, 1000))
    assert bench.is_later("0")
    assert not bench.is_later("1")


def test_the_configured_filer_decides(tmp_path: Path) -> None:
    peers = cast("Peers", FakeSealer())
    local = Config(filer_root=PathOrUrl(str(tmp_path)))
    assert isinstance(payloads_of(local, peers, lambda: 0), LocalPayloads)
    bucket = Config(filer_root=PathOrUrl("s3://bucket/prefix"))
    assert isinstance(payloads_of(bucket, peers, lambda: 0), AskedPayloads)
