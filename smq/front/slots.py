"""Slots for requests that are answered at the same time: slow uploads never shut out a page.

A client decides how long a transfer takes, so transfers have slots of their own. An address beyond
loopback gets a share of each kind's slots. Health is always answered.

Who has not logged in holds no slot, so that no number of logins takes one from who has. He waits in
one of three places, each of which is bounded and fair by itself: the form of a login comes in
(smq.front.places), the thread that checks passwords is busy (smq.front.lane), what was shown was
wrong and the answer is late (smq.front.places again).
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
FORMS_MAX = 128  # Of logins that come in; each may have 80 KiB.
LATE_MAX = 128  # Answers that are late; of more the oldest are answered.
LINE_MAX = 256  # For a thread that checks some two hundred passwords a second, and as many again.
WAITING_MAX = FORMS_MAX + LATE_MAX + 2 * LINE_MAX  # Without a slot.
RETRY_AFTER_S = 1
SHARE = 4  # An address has at most one slot in this many.
TRANSFERS = ("/filer/", "/sql")


class SlotKind(Enum):
    """What slots are for."""

    PAGE = auto()
    TRANSFER = auto()


class RequestSlot(NamedTuple):
    """What a request occupies. `address` is None for programs on this host."""

    kind: SlotKind
    address: str | None

    @property
    def slots(self) -> int:
        """How many slots its kind has."""
        return PAGES_MAX if self.kind is SlotKind.PAGE else TRANSFERS_MAX


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
