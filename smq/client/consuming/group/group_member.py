"""Membership in a consumer group: joined, kept and left by a thread of its own.

    poll's thread                                 this thread
    ------------------------------------------    ------------------------------------------------
    join(owned) ------------------------------->  JoinGroup; the leader assigns; SyncGroup
    take_event() -> Assigned <------------------
                                                  Heartbeat, Heartbeat … REBALANCE_IN_PROGRESS
    take_event() -> Rebalance <-----------------
    gives up its partitions, join(owned) ------>  JoinGroup …

The thread joins only when poll says so: no batch of the old partitions is lent then.
Meanwhile it keeps the session alive. A consumer that does not poll for too long counts as hung: the
thread leaves the group so that others take over, with the event Lost.

The leader of the group looks at intervals for new partitions of the topics, and starts a rebalance
if there are any.
"""

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from smq.client.consuming.consumer_settings import COOPERATIVE, ConsumerSettings
from smq.client.consuming.group.commits import Membership
from smq.client.consuming.group.group_session import GroupSession, Stopped
from smq.client.kafka.cluster import PASSING
from smq.client.names import TopicPartition
from smq.client.reach import Reach
from smq.client.wait import wait_readable
from smq.client.wake import Wake
from smq.model.errors import BrokerError, ErrorCode, PeerError

HEARTBEATS_A_SESSION = 15  # The ratio of Kafka's defaults: 3 s of 45 s.
RETRY_SECONDS = 0.1

# Our partitions may be assigned to others by now.
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are assigned to this member from now on."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The group rebalances: give up partitions as needed, then join."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The group has dropped this member, and reassigns its partitions. Join again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Membership failed, or has been failing for long. `is_out`: it is not retried."""

    error: Exception
    is_out: bool


Event = Assigned | Rebalance | Lost | Failed


class GroupMember:
    """A member of a group. Each poll checks `events`: a deque that is mostly empty."""

    def __init__(
        self,
        reach: Reach,
        settings: ConsumerSettings,
        topics: Iterable[str],
    ) -> None:
        self.events: deque[Event] = deque()
        self._rings = Wake()  # For poll.
        self._wake = Wake()  # For the thread.
        self._topics = frozenset(topics)
        self._settings = settings
        self._clock = reach.clock
        self._deadline_seconds = reach.deadline_seconds
        self._metadata_max_age_s = reach.metadata_max_age_s
        self._look_at = self._polled_at = self._clock.monotonic_s()
        self._wanted: frozenset[TopicPartition] | None = frozenset()
        self._is_member = False
        self._is_told = False
        self._stopping = False
        self._failing_since: float | None = None
        self._session = GroupSession(reach.cluster, settings, self._await)
        self._thread = threading.Thread(target=self._run, name="smq-group", daemon=True)
        self._thread.start()

    @property
    def membership(self) -> Membership:
        """The membership that commits are made with now."""
        return self._session.membership

    @property
    def is_member(self) -> bool:
        """Whether the group counts us as a member, as far as we know; also during a rebalance."""
        return self._is_member

    @property
    def is_cooperative(self) -> bool:
        """Whether a rebalance stops only the partitions that move."""
        return set(self._settings.assignors) == {COOPERATIVE}

    def fileno(self) -> int:
        """Readable while there are events."""
        return self._rings.fileno()

    def polled(self) -> None:
        """The consumer polls: it is not hung."""
        self._polled_at = self._clock.monotonic_s()

    def take_event(self) -> Event:
        """Remove and return the oldest event."""
        self._rings.clear()
        return self.events.popleft()

    def join(self, owned: Iterable[TopicPartition]) -> None:
        """Join again, keeping these partitions if the assignor lets us."""
        self._wanted = frozenset(owned)
        self._wake.wake()

    def close(self) -> None:
        """Leave the group."""
        self._stopping = True
        self._wake.wake()
        self._thread.join()
        self._wake.close()
        self._rings.close()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._work()
            except Stopped:
                break
            except BrokerError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001  (poll raises it, whatever it is.)
                self._give_up(error)
        with suppress(BrokerError, PeerError):
            self._session.leave()
        self._session.close()

    def _work(self) -> None:
        if self._wanted is not None:
            owned, self._wanted = self._wanted, None
            try:
                assigned = self._session.join(self._topics, owned)
            except BaseException:
                self._wanted = owned
                raise
            self._is_member, self._is_told = True, False
            self._look_at = self._clock.monotonic_s() + self._metadata_max_age_s
            self._tell(Assigned(assigned))
        elif not self._is_member:
            self._sleep(None)
        elif not self._sleep(self._settings.session_timeout_s / HEARTBEATS_A_SESSION):
            self._beat()
        self._failing_since = None

    def _beat(self) -> None:
        if self._clock.monotonic_s() - self._polled_at > self._settings.poll_interval_s_max:
            self._session.leave()
            self._lose()
            return
        try:
            self._session.heartbeat()
        except BrokerError as error:
            if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            self._share_anew()
        if self._clock.monotonic_s() >= self._look_at:
            if self._session.has_other_partitions():
                self._share_anew()
            self._look_at = self._clock.monotonic_s() + self._metadata_max_age_s

    def _share_anew(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(Rebalance())

    def _failed(self, error: BrokerError) -> None:
        if error.code in LOST:
            if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._session.resign()
            self._lose()
        elif error.code in PASSING or error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._retry_later(error)
        else:
            self._give_up(error)

    def _retry_later(self, error: BrokerError) -> None:
        now = self._clock.monotonic_s()
        self._failing_since = self._failing_since or now
        if now - self._failing_since > self._deadline_seconds:
            self._failing_since = now
            self._tell(Failed(error, is_out=False))
        self._session.forget()
        self._sleep(RETRY_SECONDS)

    def _lose(self) -> None:
        self._is_member, self._wanted = False, None
        self._tell(Lost())

    def _give_up(self, error: Exception) -> None:
        self._session.forget()
        self._is_member, self._wanted = False, None
        self._tell(Failed(error, is_out=True))

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        self._rings.wake()

    def _await(self, fileno: int) -> None:
        """Return when the descriptor is readable. Raises Stopped."""
        while fileno not in wait_readable([fileno, self._wake.fileno()], None):
            self._sleep(0)
            if self._stopping:
                raise Stopped

    def _sleep(self, seconds: float | None) -> bool:
        """Whether we were woken."""
        woken = bool(wait_readable([self._wake.fileno()], seconds))
        if woken:
            self._wake.clear()
        return woken
