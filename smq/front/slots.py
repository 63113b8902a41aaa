"""Slots for requests that are answered at the same time: slow uploads never shut out a page.

A client decides how long a transfer takes, so transfers have slots of their own. So have passwords
and tokens that have to be checked, or were wrong and wait for their answer, and once more those of
connections on which such a one was wrong before: no number of them takes a slot from who has logged
in. An address beyond loopback gets a share of each kind's slots. Health is always answered.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from ipaddress import ip_address
from typing import NamedTuple

from starlette.types import Scope

from smq.security.addresses import network_of

HEALTH_PATH, LIVE_PATH, READY_PATH = "/health", "/health/live", "/health/ready"
METRICS_PATH = "/metrics"
HEALTH_PATHS = frozenset({HEALTH_PATH, LIVE_PATH, READY_PATH})
TRANSFERS_MAX = 384  # Each holds pieces of an object, and perhaps an open file.
PAGES_MAX = 128
REQUESTS_MAX = TRANSFERS_MAX + PAGES_MAX
LOGINS_MAX = 128  # They wait for a thread that checks some two hundred passwords a second.
SHARE = 4  # An address has at most one slot in this many.
TRANSFERS = ("/filer/", "/sql")


class SlotKind(Enum):
    """What slots are for."""

    PAGE = auto()
    TRANSFER = auto()
    LOGIN = auto()
    LOGIN_AGAIN = auto()
    """One on its connection was not right."""


class RequestSlot(NamedTuple):
    """What a request occupies. `address` is None for programs on this host."""

    kind: SlotKind
    address: str | None

    @property
    def slots(self) -> int:
        """How many slots its kind has."""
        if self.kind is SlotKind.PAGE:
            return PAGES_MAX
        return TRANSFERS_MAX if self.kind is SlotKind.TRANSFER else LOGINS_MAX

    def for_login(self, *, again: bool) -> "RequestSlot":
        """What its login occupies before."""
        return self._replace(kind=SlotKind.LOGIN_AGAIN if again else SlotKind.LOGIN)


class Slots:
    """The slots of one front."""

    def __init__(self) -> None:
        self._taken = Counter[RequestSlot]()
        self._of_kind = Counter[SlotKind]()

    def is_full(self, slot: RequestSlot) -> bool:
        """Whether no request like this may be answered now."""
        share = slot.slots // SHARE if slot.address else slot.slots
        return self._of_kind[slot.kind] >= slot.slots or self._taken[slot] >= share

    @contextmanager
    def taken(self, slot: RequestSlot) -> Iterator[None]:
        """Occupy a slot within the block."""
        self._taken[slot] += 1
        self._of_kind[slot.kind] += 1
        try:
            yield
        finally:
            self._of_kind[slot.kind] -= 1
            self._taken[slot] -= 1
            if not self._taken[slot]:
                del self._taken[slot]


def slot_of(scope: Scope, *, needs_login: bool = False) -> RequestSlot | None:
    """The slot that a request needs; None for health, which needs none unless it needs a login."""
    path = scope["path"]
    if path in HEALTH_PATHS and not needs_login:
        return None
    host: str | None = scope["client"][0] if scope.get("client") else None
    is_far = host is not None and not ip_address(host).is_loopback
    address = network_of(host) if host is not None and is_far else None
    return RequestSlot(SlotKind.TRANSFER if path.startswith(TRANSFERS) else SlotKind.PAGE, address)
