"""What the audit log tells, as lines of JSON: who did what, and what was refused. No IO, no clock.

    acts       changes that are made: one line each
    accesses   denials, acts that failed, logins, failed logins: the first of its kind in a minute,
               and at the end of the minute how many more there were

So a client that is refused ten thousand times a second costs two lines a minute. In a minute a
process tells of TOLD_MAX kinds at most, of one asker OF_ONE_MAX; the others are only counted. What
fails is counted, too: some of it fails before anybody asks for a right, so that everybody can make
any number of it.

Names come from anybody. They are cut, and what does not print is escaped, so that a name begins no
line and shows no other order than there is (smq.model.printable).
"""

import json
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.model.printable import printable
from smq.security.addresses import network_of
from smq.security.principals import Peer

WINDOW_MS = 60_000
TOLD_MAX = 200  # 200 KiB a minute at most.
OF_ONE_MAX = 50  # One asker does not hide all others.
NAME_MAX = 256  # Characters; a topic's name has 249 at most.
DETAIL_MAX = 1024

DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Codes of refusals, which are no acts that failed: they are counted among the denials."""


class Event(NamedTuple):
    """One line. `principal` is who has logged in, never who somebody claims to be; "": nobody has.

    event      act, failed act, denied, login, failed login, start, stop, unsure or others
    resource   its name
    """

    event: str
    principal: str = ""
    host: str = ""
    listener: str = ""
    api: str = ""
    operation: str = ""
    resource_type: str = ""
    resource: str = ""
    error: str = ""
    detail: str = ""


class AdminAct(NamedTuple):
    """A change, or one that failed, as an API's answer tells it. With a code nothing has
    changed."""

    operation: str
    resource_type: str
    resource: str
    code: int = ErrorCode.NONE
    detail: str = ""


def cut(text: str, length_max: int = NAME_MAX) -> str:
    """A text of a bounded length."""
    return text if len(text) <= length_max else f"{text[:length_max]}…"


def line_of(event: Event, wall_ms: int, count: int = 1) -> str:
    """An event as a line of JSON, without its end. Fields that say nothing are left out."""
    told: dict[str, str | int] = {"time": _time(wall_ms), "ms": wall_ms}
    for name, value in zip(Event._fields, event, strict=True):
        if value:
            told[name] = cut(value, DETAIL_MAX if name == "detail" else NAME_MAX)
    if count != 1:
        told["count"] = count
    return printable(_encode(told))


_encode = json.JSONEncoder(ensure_ascii=False).encode


@lru_cache(maxsize=4)  # A turn has one.
def _time(wall_ms: int) -> str:
    """By ISO 8601, UTC."""
    return f"{np.datetime64(wall_ms, 'ms')}Z"


class Recurring:
    """Events of one kind, each told at once and then counted for a minute."""

    def __init__(self) -> None:
        self._more: dict[Event, int] = {}  # How often each has come again.
        self._by: Counter[str] = Counter()
        self._new: list[Event] = []
        self._others_count = 0
        self._ends_ms = 0

    def invariants(self) -> None:
        """Assert the bounds."""
        assert len(self._new) <= len(self._more) <= TOLD_MAX
        assert all(count <= OF_ONE_MAX for count in self._by.values())

    def note(self, event: Event) -> None:
        """It has happened."""
        if event in self._more:
            self._more[event] += 1
            return
        by = event.principal or network_of(event.host)
        if len(self._more) >= TOLD_MAX or self._by[by] >= OF_ONE_MAX:
            self._others_count += 1
            return
        self._more[event] = 0
        self._by[by] += 1
        self._new.append(event)

    def take(self, now: Now) -> list[str]:
        """The lines that are due."""
        lines = [line_of(each, now.wall_ms) for each in self._new]
        self._new = []
        if now.monotonic_ms < self._ends_ms:
            return lines
        again = [(each, count) for each, count in self._more.items() if count]
        lines += [line_of(each, now.wall_ms, count) for each, count in again]
        if self._others_count:
            kind = next(iter(self._more)).event
            others = Event("others", detail=f"{kind}: more than are told of each")
            lines.append(line_of(others, now.wall_ms, self._others_count))
        self._more, self._by, self._others_count = {}, Counter(), 0
        self._ends_ms = now.monotonic_ms + WINDOW_MS
        return lines


class Audit:
    """What one process has to tell, until it is taken. Nothing where it is not `on`."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.acts: list[str] = []
        self.passed_on: list[str] = []  # Accesses that another process has told.
        self._denials, self._failed_acts = Recurring(), Recurring()
        self._logins, self._failed_logins = Recurring(), Recurring()
        self._accesses = self._denials, self._failed_acts, self._logins, self._failed_logins

    def invariants(self) -> None:
        """Assert the bounds, and that one that is off keeps nothing."""
        for each in self._accesses:
            each.invariants()
        assert self.on or not self.acts

    def act(self, peer: Peer, api: str, act: AdminAct, now: Now) -> None:
        """A peer has changed something, or has failed to. What it may not is neither."""
        if not self.on or act.code in DENIALS:
            return
        who = cut(str(peer.principal)), peer.host, peer.listener
        what = act.operation, act.resource_type, cut(act.resource)
        if act.code == ErrorCode.NONE:
            event = Event("act", *who, api, *what, detail=act.detail)
            self.acts.append(line_of(event, now.wall_ms))
        else:  # Cut to what a denial takes at most: it ends older ones.
            how = error_name(act.code), cut(act.detail)
            self._failed_acts.note(Event("failed act", *who, api, *what, *how))

    def denied(self, peer: Peer, api: str, operation: str, resource_type: str, name: str) -> None:
        """A peer may not do what it has asked for."""
        if self.on:
            who = cut(str(peer.principal)), peer.host, peer.listener
            self._denials.note(Event("denied", *who, api, operation, resource_type, cut(name)))

    def logged_in(self, peer: Peer, how: str) -> None:
        """A peer has logged in, by a mechanism or otherwise."""
        if self.on:
            who = cut(str(peer.principal)), peer.host, peer.listener
            self._logins.note(Event("login", *who, detail=how))

    def login_failed(self, host: str, listener: str, how: str) -> None:
        """A login has failed. Nobody knows who it was."""
        if self.on:
            self._failed_logins.note(Event("failed login", "", host, listener, detail=how))

    def take_acts(self) -> list[str]:
        """The lines of acts, each once."""
        acts, self.acts = self.acts, []
        return acts

    def take_accesses(self, now: Now) -> list[str]:
        """The lines of accesses that are due, each once."""
        lines, self.passed_on = self.passed_on, []
        for each in self._accesses:
            lines += each.take(now)
        return lines


def error_name(code: int) -> str:
    """A code in Kafka's words; "": none."""
    if code == ErrorCode.NONE:
        return ""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


OFF = Audit(on=False)
