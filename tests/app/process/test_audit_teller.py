"""The front hands its lines to the coordinator, and only an act waits for it."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smq.app.process import audit_teller
from smq.app.process.audit_teller import LINES_MAX, AuditTeller
from smq.model.errors import Unavailable
from smq.model.now import Now
from smq.security.audit import OF_ONE_MAX, AdminAct, Audit
from smq.security.principals import Peer, Principal
from smq.wire.internal.messages import Audited
from tests.front.users import Users, logins_for

BOB = Peer(Principal("User", "bob"), "10.0.0.7", "HTTP")


class Coordinator:
    """One that answers, or not."""

    def __init__(self) -> None:
        self.asked: list[Audited] = []
        self.is_away = False

    def ask(self, question: Audited) -> tuple[bool, bytes]:
        if self.is_away:
            raise Unavailable("coordinator", "no answer")
        self.asked.append(question)
        return True, b""


async def at_once(work: Callable[..., Any], *given: Any) -> Any:
    """In place of a thread."""
    return work(*given)


class Bench:
    def __init__(self) -> None:
        self.audit, self.coordinator, self.said = Audit(), Coordinator(), list[str]()
        self.logins = logins_for(Users("bob"))
        self.teller = AuditTeller(
            self.audit, Path("/none"), self.said.append, at_once, [self.logins]
        )
        self.teller._asker = self.coordinator  # type: ignore[assignment]

    def tell(self) -> list[dict[str, Any]]:
        """The lines that the coordinator gets."""
        self.coordinator.asked.clear()
        asyncio.run(self.teller.tell())
        assert all(not each.acts for each in self.coordinator.asked)
        return [json.loads(line) for each in self.coordinator.asked for line in each.accesses]


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.tell()  # A minute begins.
    return made


def acts_told(bench: Bench) -> list[str]:
    lines = [line for each in bench.coordinator.asked for line in each.acts]
    return [json.loads(line)["resource"] for line in lines]


def test_a_repeated_denial_has_one_line_with_principal_and_resource(bench: Bench) -> None:
    for _ in range(10_000):
        bench.audit.denied(BOB, "HTTP GET /filer", "READ", "TOPIC", "filer/a\nb")
    [line] = bench.tell()
    wanted = {"event": "denied", "principal": "User:bob", "host": "10.0.0.7", "listener": "HTTP"}
    wanted |= {"api": "HTTP GET /filer", "operation": "READ", "resource": "filer/a\nb"}
    assert wanted.items() <= line.items()
    assert bench.tell() == []


def test_a_flood_of_names_has_few_lines(bench: Bench) -> None:
    for n in range(10_000):
        bench.audit.denied(BOB, "HTTP GET /filer", "READ", "TOPIC", f"filer/{n}")
    assert len(bench.tell()) == OF_ONE_MAX


def test_an_act_waits_until_the_coordinator_has_taken_it(bench: Bench) -> None:
    act = AdminAct("DELETE", "SESSION", "User:alice")
    bench.audit.act(BOB, "HTTP POST /sessions", act, Now(0, 0))
    bench.coordinator.is_away = True
    asyncio.run(bench.teller.tell())
    bench.coordinator.is_away = False
    for expected in (["User:alice"], []):
        bench.coordinator.asked.clear()
        asyncio.run(bench.teller.tell())
        acts = [json.loads(line) for each in bench.coordinator.asked for line in each.acts]
        assert [each["resource"] for each in acts] == expected


def test_the_coordinator_gets_an_act_before_it_is_done(bench: Bench) -> None:
    """The death of the front lost its line within a second."""
    for is_away, told in ((True, []), (False, ["User:alice", "User:carol"])):
        bench.coordinator.is_away = is_away
        user = "alice" if is_away else "carol"
        act = AdminAct("DELETE", "SESSION", f"User:{user}")
        asyncio.run(bench.teller.act(BOB, "HTTP POST /sessions", act))
        assert acts_told(bench) == told


def test_several_tells_at_once_send_each_line_once(bench: Bench) -> None:
    async def slowly(work: Callable[..., Any], *given: Any) -> Any:
        await asyncio.sleep(0)
        return work(*given)

    async def run() -> None:
        acts = [AdminAct("DELETE", "SESSION", f"User:u{n}") for n in range(3)]
        await asyncio.gather(*(bench.teller.act(BOB, "HTTP POST /sessions", each) for each in acts))

    bench.teller._in_thread, bench.teller.turn = slowly, asyncio.Lock()
    asyncio.run(run())
    assert sorted(acts_told(bench)) == ["User:u0", "User:u1", "User:u2"]


def acts_at_once(bench: Bench, users: list[str], first_cancelled: bool = False) -> int:
    """How often the coordinator is asked for the ends of sessions: one while another asks."""
    asked_count, asking, go = 0, asyncio.Event(), asyncio.Event()

    async def slowly(work: Callable[..., Any], *given: Any) -> Any:
        nonlocal asked_count
        asked_count += 1
        asking.set()
        await go.wait()
        return work(*given)

    async def run() -> None:
        bench.teller.turn = asyncio.Lock()
        tasks = list[asyncio.Task[None]]()
        for user in users:
            act = AdminAct("DELETE", "SESSION", f"User:{user}")
            tasks.append(asyncio.create_task(bench.teller.act(BOB, "HTTP POST /sessions", act)))
            await asyncio.wait_for(asking.wait(), 20)
        if first_cancelled:
            await asyncio.sleep(0)
            tasks[0].cancel()
        go.set()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    bench.teller._in_thread = slowly
    asyncio.run(run())
    return asked_count


@pytest.mark.parametrize("is_away", [False, True])
def test_acts_that_wait_behind_a_tell_share_the_next(bench: Bench, is_away: bool) -> None:
    """While the coordinator hung the last of twelve ends of sessions took thirteen seconds."""
    users = [f"u{n}" for n in range(12)]
    bench.coordinator.is_away = is_away
    assert acts_at_once(bench, users) == 2
    bench.coordinator.is_away = False
    asyncio.run(bench.teller.tell())
    assert acts_told(bench) == [f"User:{user}" for user in users]


def test_others_tell_for_themselves_after_one_was_cancelled(bench: Bench) -> None:
    assert acts_at_once(bench, ["u0", "u1", "u2"], first_cancelled=True) == 2
    assert sorted(acts_told(bench)) == ["User:u0", "User:u1", "User:u2"]


def test_lines_wait_for_a_coordinator_that_is_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.coordinator.is_away = True
    bench.audit.passed_on = [f'{{"n": {n}}}' for n in range(LINES_MAX + 3)]
    assert bench.tell() == []
    bench.audit.denied(BOB, "HTTP GET /sql", "READ", "TOPIC", "orders")
    bench.coordinator.is_away = False
    told = bench.tell()
    assert [each.get("n") for each in told] == [*range(LINES_MAX + 3), None]
    assert [len(each.accesses) for each in bench.coordinator.asked] == [LINES_MAX, 4]
    monkeypatch.setattr(audit_teller, "WAITING_MAX", 2)
    bench.coordinator.is_away = True
    bench.audit.passed_on = ["{}"] * 5
    bench.tell()
    assert bench.said == ["audit: 3 lines are lost: the coordinator does not answer"]
    assert len(bench.audit.passed_on) == 2


def test_the_operator_reads_of_failed_logins_once_a_minute(bench: Bench) -> None:
    bench.logins.failed_count = 7
    bench.tell()
    bench.logins.failed_count = 9
    bench.tell()
    assert bench.said == ["front: failed logins since the last such line: 7"]
