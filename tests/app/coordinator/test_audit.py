"""An act has its line on disk before it is done, and a denial has one whatever follows."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from smq.security.audit import Event, line_of
from smq.wire.internal.form import decode_answer
from smq.wire.internal.messages import Audited
from tests.app.coordinator.server_bench import Bench, Peer, create


class Written:
    """An audit log in memory; with each line of an act, the topics that a death now would leave."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.acts: list[tuple[dict[str, Any], set[str]]] = []
        self.accesses: list[str] = []
        bench.server._audit_log = self
        bench.server._audit.on = True

    def tell_acts(self, lines: Sequence[str]) -> None:
        published = self._bench.published[-1]
        names = {topic.name for topic in published.all()}
        self.acts += [(json.loads(line), names) for line in lines]

    def tell_accesses(self, lines: Sequence[str]) -> None:
        self.accesses += lines

    @property
    def events(self) -> list[str]:
        return [line["event"] for line, _ in self.acts]


@pytest.fixture
def written(bench: Bench) -> Written:
    return Written(bench)


def test_an_act_is_written_before_it_can_be_seen(bench: Bench, written: Written) -> None:
    peer = Peer(bench)
    asked = create(peer, "orders")
    assert asked in peer.answers()
    [(line, published)] = written.acts
    assert (line["event"], line["resource"]) == ("act", "orders")
    assert "orders" not in published
    assert "orders" in {topic.name for topic in bench.published[-1].all()}


def test_acts_of_a_turn_that_fails_are_said_to_be_unsure(bench: Bench, written: Written) -> None:
    peer = Peer(bench)
    bench.store.fails = True
    create(peer, "orders")
    bench.turn(3)
    bench.store.fails = False
    assert written.events == ["act", "unsure"]
    bench.turn(3)
    again = create(Peer(bench), "orders")
    assert again
    bench.turn(3)
    assert written.events == ["act", "unsure", "act"], "the next coordinator tells, too"


def test_lines_of_a_shard_are_written_and_then_answered(bench: Bench, written: Written) -> None:
    peer = Peer(bench)
    line = line_of(Event("act", api="DeleteRecords"), 0)
    answer = peer.command(Audited([line], ["denied"]))
    assert decode_answer(Audited, answer) is True
    assert [each["api"] for each, _ in written.acts] == ["DeleteRecords"]
    assert written.accesses == ["denied"]


def test_without_an_audit_log_the_coordinator_writes_no_line(
    bench: Bench, written: Written
) -> None:
    bench.server._audit.on = False
    peer = Peer(bench)
    assert create(peer, "orders") in peer.answers()
    assert written.acts == []
