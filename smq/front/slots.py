"""Slots for requests that are answered at the same time: slow uploads never shut out a page.

A client decides how long a transfer takes, so transfers have slots of their own. A user gets a
share of each kind's slots, and so does an address beyond loopback. Health is always answered.

Who has not logged in holds no slot, so that no number of logins takes one from who has. He waits in
one of three places, each of which is bounded and fair by itself: the form of a login comes in
(smq.front.places), the thread that checks passwords is busy (smq.front.lane), what was shown was
wrong and the answer is late (smq.front.places again).

Who has logged in and may nothing holds none for long either: the text of a query comes in, and the
body of a refused request is read to its end, in such places of their own.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from ipaddress import ip_address
from typing import NamedTuple

from starlette.types import Scope

from smq.security.addresses import network_of
from smq.security.principals import Principal

HEALTH_PATH, LIVE_PATH, READY_PATH = "/health", "/health/live", "/health/ready"
METRICS_PATH = "/metrics"
HEALTH_PATHS = frozenset({HEALTH_PATH, LIVE_PATH, READY_PATH})
TRANSFERS_MAX = 384  # Each holds pieces of an object, and perhaps an open file.
PAGES_MAX = 128
REQUESTS_MAX = TRANSFERS_MAX + PAGES_MAX
FORMS_MAX = 128  # Of logins that come in; each may have 80 KiB.
LATE_MAX = 128  # Answers that are late; of more the oldest are answered.
QUERIES_MAX = 128  # Texts of queries that come in; each has as much as a form.
DRAINS_MAX = 128  # Bodies of refused requests that are read: of more the oldest are not.
LINE_MAX = 256  # For a thread that checks some two hundred passwords a second, and as many again.
WAITING_MAX = FORMS_MAX + LATE_MAX + QUERIES_MAX + DRAINS_MAX + 2 * LINE_MAX  # Without a slot.
RETRY_AFTER_S = 1
SHARE = 4  # A user has at most one slot in this many, and an address.
TRANSFERS = ("/filer/", "/sql")


class SlotKind(Enum):
    """What slots are for."""

    PAGE = auto()
    TRANSFER = auto()


class RequestSlot(NamedTuple):
    """What a request occupies.

    address   None: of programs on this host
    user      None: nobody has to log in for it
    """

    kind: SlotKind
    address: str | None
    user: Principal | None = None

    @property
    def slots(self) -> int:
        """How many slots its kind has."""
        return PAGES_MAX if self.kind is SlotKind.PAGE else TRANSFERS_MAX

    @property
    def holders(self) -> list[tuple[SlotKind, str | Principal]]:
        """Those of whose share it is."""
        return [(self.kind, each) for each in (self.address, self.user) if each]


class Slots:
    """The slots of one front."""

    def __init__(self) -> None:
        self._of_holder = Counter[tuple[SlotKind, str | Principal]]()
        self._of_kind = Counter[SlotKind]()

    def is_full(self, slot: RequestSlot) -> bool:
        """Whether no request like this may be answered now."""
        share = slot.slots // SHARE
        has_share = all(self._of_holder[each] < share for each in slot.holders)
        return self._of_kind[slot.kind] >= slot.slots or not has_share

    @contextmanager
    def taken(self, slot: RequestSlot) -> Iterator[None]:
        """Occupy a slot within the block."""
        self._of_holder.update(slot.holders)
        self._of_kind[slot.kind] += 1
        try:
            yield
        finally:
            self._of_kind[slot.kind] -= 1
            for each in slot.holders:
                self._of_holder[each] -= 1
                if not self._of_holder[each]:
                    del self._of_holder[each]


def slot_of(scope: Scope, *, needs_login: bool = False) -> RequestSlot | None:
    """The slot that a request needs; None for health, which needs none unless it needs a login."""
    path = scope["path"]
    if path in HEALTH_PATHS and not needs_login:
        return None
    host: str | None = scope["client"][0] if scope.get("client") else None
    is_far = host is not None and not ip_address(host).is_loopback
    address = network_of(host) if host is not None and is_far else None
    return RequestSlot(SlotKind.TRANSFER if path.startswith(TRANSFERS) else SlotKind.PAGE, address)
