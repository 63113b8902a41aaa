"""Clients that may not do everything are served by a kernel, as far as their rights go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import COUNTER_FETCH_REQUESTS
from shm.kernels.turn.words import HELD, LIMITED, LIMITED_HELD, PARKED
from smq.app.process.clock import monotonic_ns
from smq.model.catalog import Topic
from smq.model.errors import ErrorCode
from smq.security.acls import AclBinding, Operation, PatternType, Permission
from smq.shard.bitmaps import BITMAPS_MAX
from smq.shard.shard import Shard
from tests.app.quick import DISK, Quick, awaited, one
from tests.app.shard.turns.test_quick_turns import Step, fetches, outcome, produces, steps_of
from tests.app.shard_client import Client, ServerBench, benches, fetch, fetched, settle
from tests.security.test_access import FakeBlock
from tests.security.test_authorizer import rule
from tests.shard.limited import limited_shard, peer
from tests.shard.shard_bench import batch, catalog, produce_request, responses, topic
from tests.shard.transactional_bench import transactional_batch, transactional_request

pytestmark = pytest.mark.usefixtures("always_quick")
READ, WRITE = Operation.READ, Operation.WRITE
DENIED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NONE = ErrorCode.NONE
ONE, SAFE = topic("one"), topic("safe", range(5, 6), DISK)
MAY = [rule("one", READ), rule("one", WRITE)]


class LimitedBench(ServerBench):
    """A server whose clients are alice, who may do what `block` says."""

    def make_shard(self, directory: Path, *topics: Topic, **config: Any) -> Shard:
        self.block = FakeBlock()
        return limited_shard(directory, self.block, *topics, **config)

    def client(self, receive_bytes: int | None = None, name: str = "alice") -> Client:
        client = super().client(receive_bytes)
        self.log_in(client, name)
        return client

    def log_in(self, client: Client, name: str) -> None:
        connection = self.server.clients.by_fd[self.fd(client)]
        who = peer(name, connection.caller.host)
        connection.caller.rights = self.shard.access.rights_of(who)
        self.server._quick_turns.note(connection)

    def fd(self, client: Client) -> int:
        """The server's descriptor of a client."""
        port = client.socket.getsockname()[1]
        [found] = [fd for fd, each in self.server.clients.by_fd.items() if each.caller.port == port]
        return found

    def word(self, client: Client) -> int:
        """Who serves a client."""
        return int(self.server._quick_turns.clients[self.fd(client)])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[LimitedBench]:
    with benches(tmp_path, LimitedBench) as make:
        bench = make(ONE, SAFE)
        bench.block.publish(*MAY)
        yield bench
        bench.server.invariants()
        bench.shard.invariants()


def error(frame: bytes) -> int:
    """Of a Produce."""
    [(_, answer)] = responses(len(frame).to_bytes(4) + frame)
    return int(answer.responses[0].partition_responses[0].error_code)


def ask(client: Client, sent: bytes) -> bytes:
    count = len(client.frames())
    client.send(sent)
    return client.wait(count + 1)[count]


def end_of(bench: LimitedBench, name: str = "one") -> int:
    found = bench.shard.find_named(name, 0)
    return found.offsets().log_end  # type: ignore[union-attr]


def test_after_pythons_first_yes_a_kernel_serves_a_client(bench: LimitedBench) -> None:
    quick, client = Quick(bench), bench.client()
    assert error(ask(client, one())) == NONE
    taken = quick.taken
    for _ in range(5):
        assert error(ask(client, one())) == NONE
    assert quick.taken == taken + 5
    assert bench.word(client) == LIMITED
    assert len(fetched(ask(client, fetch("one"))).records) > 0
    before, counted = quick.taken, bench.shard.logs[0].words[COUNTER_FETCH_REQUESTS]
    assert fetched(ask(client, fetch("one"))).error_code == NONE
    assert (quick.taken, bench.shard.logs[0].words[COUNTER_FETCH_REQUESTS]) == (
        before + 1,
        counted + 1,
    )


class EarlyBench(LimitedBench):
    """Its shard has read who may what before the server begins."""

    def make_shard(self, directory: Path, *topics: Topic, **config: Any) -> Shard:
        shard = super().make_shard(directory, *topics, **config)
        self.block.publish(*MAY)
        shard.access.refresh()
        return shard


def test_rights_that_were_read_before_the_server_begins_are_the_kernels_too(
    tmp_path: Path,
) -> None:
    with benches(tmp_path, EarlyBench) as make:
        bench = make(ONE, SAFE)
        client = bench.client()
        for _ in range(2):
            assert error(ask(client, one())) == NONE
        fd = bench.fd(client)
        limits, connection = bench.server._quick_turns.limits, bench.server.clients.by_fd[fd]
        assert limits is not None
        assert limits.last_used_ns(fd) > connection.last_used_ns, "Python has served it"


def test_a_producer_in_the_kernels_turns_is_refused_once_its_right_is_taken(
    bench: LimitedBench,
) -> None:
    client = bench.client()
    for _ in range(3):
        assert error(ask(client, one())) == NONE
    end = end_of(bench)
    bench.block.publish(rule("one", READ))
    client.send(one() * 3)
    assert [error(frame) for frame in client.wait(6)[3:]] == [DENIED] * 3
    assert end_of(bench) == end
    bench.block.publish(*MAY)
    assert error(ask(client, one())) == NONE


def test_a_refused_batch_stands_beside_the_others(bench: LimitedBench) -> None:
    client = bench.client()
    for _ in range(2):
        ask(client, one())
    mixed = produce_request({"safe": {0: batch(b"x")}, "one": {0: batch(b"x")}})
    frame = ask(client, mixed)
    [(_, answer)] = responses(len(frame).to_bytes(4) + frame)
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes == {"one": NONE, "safe": DENIED}
    assert (end_of(bench), end_of(bench, "safe")) == (3, 0)


def test_an_unknown_name_is_answered_as_one_that_is_forbidden(bench: LimitedBench) -> None:
    client = bench.client()
    ask(client, one())
    for name in ("unknown", "safe"):
        assert error(ask(client, produce_request({name: {0: batch(b"x")}}))) == DENIED
        assert fetched(ask(client, fetch(name))).error_code == DENIED
    bench.block.publish(*MAY, rule("*", WRITE), rule("*", READ))
    assert error(ask(client, produce_request({"unknown": {0: batch(b"x")}}))) == UNKNOWN


def test_a_fetch_that_waits_in_the_kernel_is_refused_at_once(bench: LimitedBench) -> None:
    client, writer = bench.client(), bench.client()
    ask(client, fetch("one"))
    client.send(fetch("one", wait_ms=60_000))
    bench.turn()
    assert (awaited(bench), bench.word(client)) == (1, PARKED)
    bench.block.publish(rule("one", WRITE))
    writer.send(one())
    assert fetched(client.wait(2)[1]).error_code == DENIED
    assert not fetched(client.frames()[1]).records


def test_a_fetch_that_waits_is_answered_by_the_kernel_when_records_come(
    bench: LimitedBench,
) -> None:
    client, writer = bench.client(), bench.client()
    ask(client, fetch("one"))
    ask(writer, one())
    client.send(fetch("one", offset=1, wait_ms=60_000))
    bench.turn()
    assert awaited(bench) == 1
    ask(writer, one())
    assert len(fetched(client.wait(2)[1]).records) > 0
    assert (awaited(bench), bench.word(client)) == (0, LIMITED)


def test_another_change_of_rights_leaves_a_fetch_waiting_by_its_own(bench: LimitedBench) -> None:
    client, writer = bench.client(), bench.client()
    ask(client, fetch("one"))
    client.send(fetch("one", wait_ms=60_000))
    bench.turn()
    assert awaited(bench) == 1
    bench.block.publish(*MAY, rule("safe", READ))
    settle(bench, client)
    assert len(client.frames()) == 1
    bench.block.publish(rule("one", WRITE))
    assert fetched(client.wait(2)[1]).error_code == DENIED
    assert error(ask(writer, one())) == NONE


def test_a_new_topic_and_one_made_again_are_asked_for_anew(bench: LimitedBench) -> None:
    client = bench.client()
    for _ in range(2):
        ask(client, one())
    bench.publish(catalog(SAFE))
    bench.turn()
    bench.publish(catalog(SAFE, topic("secret", range(7, 8))))
    assert error(ask(client, produce_request({"secret": {0: batch(b"x")}}))) == DENIED
    bench.publish(catalog(SAFE, topic("secret", range(7, 8)), topic("one", range(8, 9))))
    bench.turn()
    assert error(ask(client, one())) == NONE
    assert (end_of(bench), end_of(bench, "secret")) == (1, 0)


def test_a_client_whose_bitmaps_are_evicted_is_served_on_by_its_own_rights(
    bench: LimitedBench,
) -> None:
    client, quick, bitmaps = bench.client(), Quick(bench), bench.shard.bitmaps
    assert bitmaps is not None
    bench.block.publish(*MAY, rule("safe", WRITE, principal="User:late"))
    for _ in range(2):
        ask(client, one())
    row = bitmaps.row_of(peer(host="127.0.0.1"))
    for each in range(BITMAPS_MAX - 2):
        bitmaps.row_of(peer(f"u{each}"))
    assert bitmaps.row_of(peer("late")) == row
    bitmaps.learn(peer("late"), WRITE, [bench.shard.find_named("safe", 0).code])  # type: ignore[union-attr]
    assert error(ask(client, produce_request({"safe": {0: batch(b"x")}}))) == DENIED
    assert error(ask(client, one())) == NONE
    before = quick.taken
    assert error(ask(client, one())) == NONE
    assert quick.taken == before + 1


def test_a_rule_about_one_address_is_about_its_clients_alone(bench: LimitedBench) -> None:
    client = bench.client()
    for _ in range(2):
        ask(client, one())
    deny = rule("one", WRITE, Permission.DENY)
    elsewhere = deny._replace(entry=deny.entry._replace(host="10.9.9.9"))
    here = deny._replace(entry=deny.entry._replace(host="127.0.0.1"))
    bench.block.publish(*MAY, elsewhere)
    for _ in range(2):
        assert error(ask(client, one())) == NONE
    bench.block.publish(*MAY, here)
    assert error(ask(client, one())) == DENIED


def test_a_transactional_id_is_asked_for_though_the_topic_has_its_bit(bench: LimitedBench) -> None:
    client = bench.client()
    for _ in range(2):
        ask(client, one())
    data = {"one": {0: transactional_batch(b"x", producer=(7, 0))}}
    frame = ask(client, transactional_request(data))
    [(_, answer)] = responses(len(frame).to_bytes(4) + frame)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_of(bench) == 2


def test_a_client_that_logs_in_as_another_has_the_rights_of_that(bench: LimitedBench) -> None:
    client = bench.client()
    for _ in range(2):
        ask(client, one())
    bench.log_in(client, "bob")
    assert error(ask(client, one())) == DENIED


def test_acks_of_safe_records_are_held_by_the_kernel(bench: LimitedBench) -> None:
    bench.block.publish(*MAY, rule("safe", WRITE))
    client, sent = bench.client(), produce_request({"safe": {0: batch(b"x")}})
    for _ in range(3):
        assert error(ask(client, sent)) == NONE
    assert bench.word(client) in (LIMITED, LIMITED_HELD)
    bench.block.publish(*MAY)
    assert error(ask(client, sent)) == DENIED
    assert bench.word(client) != HELD


def test_a_connection_is_used_when_the_kernel_has_taken_its_request(bench: LimitedBench) -> None:
    client = bench.client()
    ask(client, one())
    before = monotonic_ns()
    ask(client, one())
    bench.turn()
    assert bench.word(client) == LIMITED
    assert before <= bench.server._quick_turns.last_used_ns(bench.fd(client)) <= monotonic_ns()


TOPICS = [topic("one", range(1, 3)), topic("two", range(3, 5)), topic("safe", range(5, 7), DISK)]
RULES = [rule(each.name, op) for each in TOPICS for op in (READ, WRITE)]
DENIALS = [
    rule("one", WRITE, Permission.DENY),
    rule("t", READ, Permission.DENY, how=PatternType.PREFIXED),
    rule("safe", READ, Permission.DENY, principal="User:*"),
]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    script=steps_of(produces | fetches),
    rules=st.lists(st.sampled_from(RULES + DENIALS), max_size=8),
)
def test_turns_of_the_kernel_and_of_the_loop_send_limited_clients_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, script: list[Step], rules: list[AclBinding]
) -> None:
    with benches(tmp_path_factory.mktemp("pair"), LimitedBench) as make:
        quick, sleeping, slow = make(*TOPICS), make(*TOPICS), make(*TOPICS)
        sleeping.let_kernel_sleep()
        Quick(slow, is_allowed=False)
        found = []
        for each in (slow, quick, sleeping):
            each.block.publish(*dict.fromkeys(rules))
            found.append(_outcome(each, script))
            each.server.invariants()
            each.shard.invariants()
        assert found[1] == found[0]
        assert found[2] == found[0]


def _outcome(bench: LimitedBench, script: list[Step]) -> list[tuple[bytes, bool, bytes, list[int]]]:
    """As `outcome`, twice: the second time a kernel knows the rights."""
    return [*outcome(bench, script), *outcome(bench, script)]
