"""Connections that have not logged in yet, of one shard.

Each costs memory (half a handshake 36 KiB) before anybody is known, so their number, their time and
their bytes are bounded. Beyond the number the oldest goes, of those from the address that has most:
a login takes milliseconds, and who is slow may be nobody.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from smq.app.process.loop import Loop, Timer

LOGIN_MS = 10_000  # From accept to the end of the login, whatever comes between.
NEWCOMERS_MAX = 1000
OF_ADDRESS_MAX = NEWCOMERS_MAX // 2  # Then the others still have room.


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Close it; it is forgotten here before that returns."""


@dataclass(slots=True)
class _Newcomer:
    host: str
    deadline: Timer


@dataclass
class Newcomers:
    """Those of one shard, the oldest first.

    Invariant: there are at most NEWCOMERS_MAX, and at most OF_ADDRESS_MAX from one address.
    """

    loop: Loop
    _all: dict[Closable, _Newcomer] = field(default_factory=dict)
    _by_host: dict[str, dict[Closable, None]] = field(default_factory=dict)

    def invariants(self) -> None:
        """Assert the class's invariant, and that both indexes have the same."""
        assert len(self._all) <= NEWCOMERS_MAX
        assert all(0 < len(each) <= OF_ADDRESS_MAX for each in self._by_host.values())
        assert sum(map(len, self._by_host.values())) == len(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, connection: object) -> bool:
        return connection in self._all

    def __iter__(self) -> Iterator[Closable]:
        return iter(self._all)

    def host_of(self, connection: Closable) -> str:
        """Where one of them comes from."""
        return self._all[connection].host

    def add(self, connection: Closable, host: str) -> None:
        """A connection has come. May close others."""
        of_host = self._by_host.get(host, {})
        if len(of_host) >= OF_ADDRESS_MAX:
            next(iter(of_host)).close()
        elif len(self._all) >= NEWCOMERS_MAX:
            most = max(self._by_host, key=lambda each: len(self._by_host[each]))
            next(iter(self._by_host[most])).close()
        deadline = self.loop.call_later(LOGIN_MS, connection.close)
        self._all[connection] = _Newcomer(host, deadline)
        self._by_host.setdefault(host, {})[connection] = None

    def forget(self, connection: Closable) -> None:
        """It has logged in, or is closed."""
        newcomer = self._all.pop(connection, None)
        if newcomer is None:
            return
        newcomer.deadline.cancel()
        of_host = self._by_host[newcomer.host]
        del of_host[connection]
        if not of_host:
            del self._by_host[newcomer.host]
