"""The publish sessions of SeaweedMQ's agent: begun by one call, used and ended by others.

A session is its principal's: for others there is none. Those that have begun are bounded, in all
and of one principal: then the oldest goes.
"""

from collections import OrderedDict
from typing import NamedTuple

from smq.agent.answers import PublishAnswer
from smq.agent.layouts import range_of
from smq.app.agent.live import Live, LivePublisher
from smq.app.agent.topics import KnownTopic
from smq.app.process.clock import wall_ms

MS_NS = 1_000_000
SESSIONS_MAX, OF_ONE_MAX = 10_000, 2_500


class PublishSession(NamedTuple):
    """What StartPublishSession has said, and whose it is."""

    topic: KnownTopic
    publisher: str
    owner: str


class SessionPublishers:
    """A session's stream as publishers: one to each partition that has records of it."""

    def __init__(self, live: Live[LivePublisher], session: PublishSession, client_id: str) -> None:
        self._live, self._session, self._client_id = live, session, client_id
        self._began_ns = wall_ms() * MS_NS
        self._to: dict[int, LivePublisher] = {}

    def note(self, answer: PublishAnswer) -> None:
        """A record is where its answer says."""
        layout, partition = self._session.topic.layout, answer.partition
        if answer.last_offset < 0 or partition >= layout.partition_count:  # One that came later.
            return
        publisher = self._to.get(partition)
        if publisher is None:
            publisher = self._to[partition] = self._live.begin(
                LivePublisher(
                    topic=self._session.topic.id,
                    partition=range_of(layout, partition),
                    name=self._session.publisher,
                    client_id=self._client_id,
                    connected_ns=self._began_ns,
                    seen_ns=self._began_ns,
                )
            )
        publisher.published_offset = publisher.acked_offset = answer.last_offset
        publisher.seen_ns = wall_ms() * MS_NS

    def end(self) -> None:
        """The stream has ended."""
        for each in self._to.values():
            self._live.end(each)


class PublishSessions:
    """The sessions that have begun and not ended."""

    def __init__(self, sessions_max: int = SESSIONS_MAX, of_one_max: int = OF_ONE_MAX) -> None:
        self._sessions_max, self._of_one_max = sessions_max, of_one_max
        self._all: OrderedDict[int, PublishSession] = OrderedDict()
        self._of: dict[str, OrderedDict[int, None]] = {}

    def invariants(self) -> None:
        """Assert that each session is its owner's, and the bounds."""
        assert {number: each.owner for number, each in self._all.items()} == {
            number: owner for owner, numbers in self._of.items() for number in numbers
        }
        assert len(self._all) <= self._sessions_max
        assert all(0 < len(each) <= self._of_one_max for each in self._of.values())

    def begin(self, number: int, session: PublishSession) -> None:
        """A session begins."""
        its = self._of.setdefault(session.owner, OrderedDict())
        self._all[number], its[number] = session, None
        if len(its) > self._of_one_max:
            self._forget(next(iter(its)))
        elif len(self._all) > self._sessions_max:
            self._forget(next(iter(self._all)))

    def find(self, number: int, owner: str) -> PublishSession | None:
        """A session of its owner; None: there is none."""
        found = self._all.get(number)
        return found if found is not None and found.owner == owner else None

    def end(self, number: int, owner: str) -> PublishSession | None:
        """End a session of its owner, and return it; None: there is none."""
        found = self.find(number, owner)
        if found is not None:
            self._forget(number)
        return found

    def _forget(self, number: int) -> None:
        owner = self._all.pop(number).owner
        del self._of[owner][number]
        if not self._of[owner]:
            del self._of[owner]
