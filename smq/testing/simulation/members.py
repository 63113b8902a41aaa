"""Members of a classic group, by hand: they join, sync, send heartbeats, and vanish.

An answer restarts a member's session, so a member that hears soon afterwards, from the same
coordinator, that nobody knows it was expelled while it was alive.
"""

from collections.abc import Callable

from smq.app.process.inheritance import COORDINATOR
from smq.model.errors import ErrorCode
from smq.testing.simulation.clients import PAUSE_MS, Message, SimClient
from smq.testing.simulation.clock import MS
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken
from smq.testing.simulation.processes import CoordinatorProcess
from smq.wire.generated.heartbeat import HeartbeatRequest
from smq.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from smq.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "members"
JOIN, SYNC, HEARTBEAT = 5, 3, 3  # Versions.
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 6_000, 20_000, 1_500
SURE_MS = SESSION_MS / 2  # Less than a session, by more than any message is late.


class SimMember(SimClient):
    """A member. It comes under a new id after it has vanished."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self.is_here = False
        self._life = 0  # What a former one has asked does not matter any more.
        self._member_id, self._generation = "", -1
        self._known: tuple[int, object] | None = None  # When it was last known, and to whom.

    def come(self) -> None:
        """Join the group, unless it is here."""
        if not self.is_here:
            self.is_here = True
            self._life += 1
            self._member_id = ""
            self._join()

    def vanish(self) -> None:
        """Die: the group is not told."""
        self.is_here = False
        self._life += 1
        self._known = None
        for connection in list(self.connections.values()):
            connection.broken()

    def _ask(self, name: str, version: int, request: Message) -> None:
        """Ask any node; without an answer, join again."""
        life, connection = self._life, self.any_connection()
        asked, asked_ns = self._coordinator(), self.world.clock.now_ns

        def answered(response: Message) -> None:
            if life != self._life:
                return
            if response is None:
                self._known = None  # A repeated request may be answered without a new session.
                self._join_later()
            else:
                self._heard(name, response, None if self._was_held(asked_ns) else asked)

        if connection is None:
            self._join_later()
        else:
            connection.ask(name, version, request, answered, REBALANCE_MS + 2 * SESSION_MS)

    def _heard(self, name: str, response: Message, asked: object) -> None:
        """`asked`: the coordinator of the time, None if it may have kept its answer. If it has
        died, its answer may have come late."""
        code = ErrorCode(response.error_code)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._check_expelled(name)
            self._member_id = ""
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        if code is not ErrorCode.NONE:
            self._join_later()
            return
        is_same = asked is self._coordinator()
        self._known = (self.world.clock.now_ns, asked) if is_same else None
        if name == "JoinGroup":
            self._member_id, self._generation = response.member_id, response.generation_id
            self._sync([each.member_id for each in response.members])
        else:
            self._after(HEARTBEAT_MS, self._send_heartbeat)

    def _was_held(self, asked_ns: int) -> bool:
        """Whether the coordinator has since stood still, with answers that it could not send."""
        process = self.world.processes.get(COORDINATOR)
        return process is not None and process.held_ns >= asked_ns

    def _check_expelled(self, name: str) -> None:
        since_ns, by = self._known or (0, None)
        silent_ms = (self.world.clock.now_ns - since_ns) / MS
        if by is not None and by is self._coordinator() and silent_ms < SURE_MS:
            raise Broken(
                f"{self.name} is unknown to its group at {name}, {silent_ms:.0f} ms after it was"
                " answered"
            )

    def _coordinator(self) -> object:
        """The one that serves now, from its start or its return to what was committed."""
        process = self.world.processes.get(COORDINATOR)
        return process.coordinator if isinstance(process, CoordinatorProcess) else None

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        life = self._life
        self.later(delay_ms, lambda: action() if life == self._life else None)

    def _join_later(self) -> None:
        self._after(PAUSE_MS, self._join)

    def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="simulated", metadata=self._member_id.encode())
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self._ask("JoinGroup", JOIN, request)

    def _sync(self, members: list[str]) -> None:
        assignments = [
            SyncGroupRequestAssignment(member_id=each, assignment=each.encode()) for each in members
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=assignments,
        )
        self._ask("SyncGroup", SYNC, request)

    def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self._generation, member_id=self._member_id
        )
        self._ask("Heartbeat", HEARTBEAT, request)
