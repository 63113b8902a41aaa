"""Transactions over a real store, with a fake shard and a clock that the test moves."""

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from smq.coordinator.producer_ids import ProducerIds
from smq.coordinator.transactions.decisions import End, ProducerEpoch
from smq.coordinator.transactions.endings import EndAnswer
from smq.coordinator.transactions.orders import LedPartition, MarkerOrder, Order, Places, SyncOrder
from smq.coordinator.transactions.transactions import TransactionRules, Transactions
from smq.model.catalog import Topic
from smq.model.now import Now
from smq.store.rows import CommittedOffset
from smq.store.store import Store

RULES = TransactionRules(timeout_max_ms=900_000, expiration_ms=7 * 24 * 3_600_000)
PARTITIONS = 6  # Numbers 1-4 on nodes 1 and 2 in turn; 5 and 6 of a `disk` topic.


@dataclass
class TransactionsDriver:
    """Turns are up to the test: `turn` commits, and has the fake shards answer unless `is_deaf`."""

    path: Path
    now: Now = field(default_factory=lambda: Now(5_000, 1_700_000_000_000))
    gone: set[int] = field(default_factory=set)
    became_disk: set[int] = field(default_factory=set)
    config_changes: int = 0
    found: list[int] = field(default_factory=list)  # Partitions that were looked up.
    markers: list[MarkerOrder] = field(default_factory=list)
    syncs: list[SyncOrder] = field(default_factory=list)
    answers: list[tuple[object, EndAnswer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = new_topic()
        self.store = Store.open(self.path)
        if not self.store.manifest.has_topic("default", "t"):
            self.store.add_topic(self.topic, 0)
            self.store.commit()
        self.transactions = self._load()

    def _load(self) -> Transactions:
        places = Places(self._find_place, lambda: self.config_changes)
        return Transactions(self.store, RULES, ProducerIds(self.store), places, self.now)

    def _find_place(self, number: int) -> LedPartition | None:
        self.found.append(number)
        if number in self.gone:
            return None
        is_synced = number > 4 or number in self.became_disk
        return LedPartition("t", number - 1, 1 + number % 2, is_synced)

    # Requests

    def begin(self, name: str = "t", brought: ProducerEpoch | None = None) -> ProducerEpoch:
        return self.transactions.begin(name, 60_000, brought, self.now)

    def add(self, producer: ProducerEpoch, *numbers: int, name: str = "t") -> None:
        self.transactions.add(name, producer, self.now, numbers=frozenset(numbers))

    def offset(self, producer: ProducerEpoch, number: int, offset: int, group: str = "g") -> None:
        self.transactions.add("t", producer, self.now, groups=frozenset({group}))
        committed = CommittedOffset(offset, -1, "", self.now.monotonic_ms)
        self.transactions.put_offsets("t", group, {number: committed})

    def end(
        self,
        producer: ProducerEpoch,
        *,
        commits: bool = True,
        bumps: bool = True,
        ticket: object = 0,
    ) -> None:
        self.transactions.end("t", End(producer, commits, bumps), ticket, self.now)

    # Turns

    def take_orders(self) -> list[Order]:
        """Commit, and take what the shards are to do."""
        self.store.commit()
        self.answers += [(each.ticket, each.answer) for each in self.transactions.take_answers()]
        orders = self.transactions.take_orders()
        self.markers += [each for each in orders if isinstance(each, MarkerOrder)]
        self.syncs += [each for each in orders if isinstance(each, SyncOrder)]
        self.transactions.invariants()
        return orders

    def turn(self) -> EndAnswer | None:
        """Turns until nothing moves; the shards do what they are told. The last answer."""
        while (orders := self.take_orders()) or self.is_due():
            for order in orders:
                if isinstance(order, MarkerOrder):
                    self.transactions.endings.marked(order, order.numbers, self.now)
                else:
                    self.transactions.endings.synced(order, frozenset(), self.now)
            if self.is_due():
                self.transactions.tick(self.now)
        return self.answers[-1][1] if self.answers else None

    def is_due(self) -> bool:
        """Whether a portion is left to do now."""
        return self.transactions.next_wake_ms() <= self.now.monotonic_ms

    def commit(self, producer: ProducerEpoch, *, commits: bool = True) -> ProducerEpoch:
        """A whole end of a transaction; the producer afterwards."""
        self.end(producer, commits=commits)
        answer = self.turn()
        assert answer is not None
        return answer.producer

    def wait(self, wait_ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + wait_ms, self.now.wall_ms + wait_ms)
        self.transactions.tick(self.now)

    def set_clock(self, step_ms: int) -> None:
        """Somebody sets the wall clock."""
        self.now = self.now._replace(wall_ms=self.now.wall_ms + step_ms)

    def restart(self, back_ms: int = 0) -> None:
        """The process dies; another one starts from what was committed. `back_ms`: the host did,
        and its time line has lost this much."""
        self.store.close()
        self.now = self.now._replace(monotonic_ms=self.now.monotonic_ms - back_ms)
        self.store = Store.open(self.path)
        self.transactions = self._load()

    @property
    def state(self) -> str:
        txn = self.transactions.get("t")
        assert txn is not None
        return txn.state

    def close(self) -> None:
        self.store.close()


def new_topic() -> Topic:

    numbers = tuple(range(1, PARTITIONS + 1))
    return Topic("t", UUID(int=1), numbers, tuple(0 for _ in numbers))
