"""What a shard sees of the filer: at once on this host, later where it must be asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from smq.app.payloads import KNOWN_MAX, KNOWN_MS, AskedPayloads, LocalPayloads, payloads_of
from smq.filer.local import LocalStore
from smq.model.config import Config
from smq.model.setting import PathOrUrl
from smq.shard.references import Later, Seen
from smq.testing.payloads import uploaded

if TYPE_CHECKING:
    from smq.app.peers import Peers


def test_on_this_host_a_payload_is_a_file(tmp_path: Path) -> None:
    store, payloads = LocalStore(tmp_path), LocalPayloads(str(tmp_path))
    key = uploaded(store, "images", b"payload").key("images")
    assert payloads.look(key) == Seen(7, store.head(key).modified_ms)
    for other in (key + "0", "payloads/kafka/other/x", f"{key}/below", "payloads/kafka/images"):
        assert payloads.look(other) is None


def test_where_the_filer_cannot_be_looked_at_the_producer_is_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(Later):
        LocalPayloads(str(tmp_path)).look("x" * 5000)


class FakeSealer:
    """Notes what it is asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[Any], None]]] = []

    def ask_sealer(self, command: dict[str, Any], answered: Callable[[Any], None]) -> None:
        assert command["do"] == "payload"
        self.asked.append((command["key"], answered))

    def answer(self, said: dict[str, Any] | None) -> None:
        self.asked.pop()[1](said)


class Bench:
    def __init__(self) -> None:
        self.sealer, self.now_ms = FakeSealer(), 0
        self.payloads = AskedPayloads(cast("Peers", self.sealer), lambda: self.now_ms)

    def is_later(self, key: str = "a") -> bool:
        try:
            self.payloads.look(key)
        except Later:
            return True
        return False


def test_elsewhere_it_is_asked_for_once_and_known_for_a_while() -> None:
    bench = Bench()
    assert bench.is_later()
    assert bench.is_later()
    assert [key for key, _ in bench.sealer.asked] == ["a"]
    bench.sealer.answer({"ok": [7, 1000]})
    assert bench.payloads.look("a") == Seen(7, 1000)
    bench.now_ms = KNOWN_MS - 1
    assert not bench.is_later()
    bench.now_ms = KNOWN_MS
    assert bench.is_later()


def test_what_is_not_there_is_said_once_and_asked_for_again() -> None:
    bench = Bench()
    assert bench.is_later()
    bench.sealer.answer({"ok": None})
    assert bench.payloads.look("a") is None
    assert bench.is_later()


def test_a_sealer_that_cannot_say_is_asked_again() -> None:
    bench = Bench()
    assert bench.is_later()
    bench.sealer.answer(None)
    assert not bench.sealer.asked
    assert bench.is_later()
    assert bench.sealer.asked


def test_it_does_not_remember_without_end() -> None:
    bench = Bench()
    for number in range(KNOWN_MAX + 1):
        assert bench.is_later(str(number))
        bench.sealer.answer({"ok": [7, 1000]})
    assert bench.is_later("0")
    assert not bench.is_later("1")


def test_the_configured_filer_decides(tmp_path: Path) -> None:
    peers = cast("Peers", FakeSealer())
    local = Config(filer_root=PathOrUrl(str(tmp_path)))
    assert isinstance(payloads_of(local, peers, lambda: 0), LocalPayloads)
    bucket = Config(filer_root=PathOrUrl("s3://bucket/prefix"))
    assert isinstance(payloads_of(bucket, peers, lambda: 0), AskedPayloads)
