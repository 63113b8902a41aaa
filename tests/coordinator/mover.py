"""A coordinator with a topic that moves, and what plays the shards and the supervisor."""

from itertools import count
from typing import TypeVar

from smq.coordinator.moves import AdoptOrder, CloseOrder, DrawOrder, MoveOrder, Moves
from smq.coordinator.topics import NewTopic
from smq.model.catalog import Moved, Topic
from smq.security.principals import Peer, Principal
from smq.wire.internal.form import Failed
from smq.wire.internal.moves import Adopted, ClosedAt, EpochStart
from tests.coordinator.coordinator_driver import CoordinatorDriver

ADA = Peer(Principal("User", "ada"), "10.0.0.1", "PLAINTEXT")
AnyOrder = TypeVar("AnyOrder", bound=MoveOrder)
GENERATIONS = {1: 4, 2: 6}


class Mover:
    """A coordinator with a topic `t` of two partitions, on nodes 1 and 2, and what plays the shards
    and the supervisor."""

    def __init__(self, driver: CoordinatorDriver) -> None:
        self.driver = driver
        driver.cluster = driver.cluster._replace(generation_of=GENERATIONS.__getitem__)
        driver.restart()
        self.epochs = count(7)
        assigned = [(0, [1]), (1, [2])]
        driver.coordinator.topics.create(NewTopic(name="t", assignments=assigned), driver.now)
        driver.store.commit()

    @property
    def moves(self) -> Moves:
        return self.driver.coordinator.moves

    @property
    def topic(self) -> Topic:
        return self.driver.coordinator.topics.catalog.by_name["t"]

    @property
    def moved(self) -> Moved:
        """Partition 0."""
        return self.topic.moved(0)

    @property
    def number(self) -> int:
        return self.topic.partition_numbers[0]

    def ask(self, node: int = 2, index: int = 0) -> None:
        number = self.topic.partition_numbers[index]
        self.moves.ask(number, node, ADA, self.driver.now)
        self.moves.invariants()
        self.moves.tick(self.driver.now)
        self.moves.invariants()

    def order(self, kind: type[AnyOrder]) -> AnyOrder:
        """The only order since the last call."""
        self.driver.store.commit()
        [order] = self.moves.take_orders()
        assert isinstance(order, kind)
        return order

    def closed(self, answer: ClosedAt | Failed | None, order: CloseOrder | None = None) -> None:
        self.moves.closed(order or self.order(CloseOrder), answer, self.driver.now)
        self.moves.invariants()

    def drawn(self, epoch: int | None, order: DrawOrder | None = None) -> None:
        self.moves.drawn(order or self.order(DrawOrder), epoch, self.driver.now)
        self.moves.invariants()

    def adopted(self, answer: Adopted | Failed | None, order: AdoptOrder | None = None) -> None:
        self.moves.adopted(order or self.order(AdoptOrder), answer, self.driver.now)
        self.moves.invariants()

    def wait(self, wait_ms: int) -> None:
        """Let time pass; the moves are looked at when they want to be."""
        now = self.driver.now
        end_ms = now.monotonic_ms + wait_ms
        while (wake_ms := self.moves.next_wake_ms()) <= end_ms:
            at_ms = max(wake_ms, self.driver.now.monotonic_ms)
            self.driver.now = self.driver.now._replace(monotonic_ms=at_ms)
            self.moves.tick(self.driver.now)
            self.moves.invariants()
        self.driver.now = self.driver.now._replace(monotonic_ms=end_ms)

    def move(self, node: int, end: int, *epochs: EpochStart) -> None:
        """A whole move of partition 0."""
        start = self.moved.leaderships[-1]
        self.ask(node)
        self.closed(ClosedAt(end, [*epochs] or [EpochStart(max(start.epoch, 1), start.start)]))
        self.drawn(next(self.epochs))
        self.adopted(Adopted(end))

    def outcome(self) -> str:
        """Why the last move was given up; "": it was made."""
        return self.driver.store.moves.newest(1)[0].outcome
