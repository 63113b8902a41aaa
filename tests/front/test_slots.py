"""Slots of pages and of transfers, and shares of users and of addresses beyond loopback."""

from contextlib import ExitStack

import pytest

from smq.front.slots import PAGES_MAX, SHARE, TRANSFERS_MAX, RequestSlot, Slots, slot_of
from smq.security.principals import Principal


def slot(path: str, host: str = "127.0.0.1") -> RequestSlot | None:
    return slot_of({"path": path, "client": (host, 5)})


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready"])
def test_health_needs_no_slot(path: str) -> None:
    assert slot(path) is None


def test_transfers_do_not_take_the_slots_of_pages() -> None:
    """Door fault 9: 512 slow uploads shut out every page."""
    slots, upload, query, page = Slots(), slot("/filer/a"), slot("/sql"), slot("/topics")
    assert upload is not None
    assert upload == query
    assert page is not None
    with ExitStack() as stack:
        for _ in range(TRANSFERS_MAX):
            assert not slots.is_full(upload)
            stack.enter_context(slots.taken(upload))
        assert slots.is_full(upload)
        for _ in range(PAGES_MAX):
            assert not slots.is_full(page)
            stack.enter_context(slots.taken(page))
        assert slots.is_full(page)
    assert not slots.is_full(upload)
    assert not slots.is_full(page)


def test_an_address_beyond_loopback_has_a_share() -> None:
    slots, far, other = Slots(), slot("/filer/a", "10.0.0.1"), slot("/filer/a", "10.0.0.2")
    near = slot("/filer/a", "::1")
    assert far is not None
    assert other is not None
    assert near is not None
    with ExitStack() as stack:
        for _ in range(TRANSFERS_MAX // SHARE):
            assert not slots.is_full(far)
            stack.enter_context(slots.taken(far))
        assert slots.is_full(far)
        assert not slots.is_full(other)
        assert not slots.is_full(near)


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["10.0.0.1", "10.0.1.1", "127.0.0.1"]])
def test_a_user_has_a_share_wherever_he_comes_from(hosts: list[str]) -> None:
    """Who may nothing had all slots of this host, and so of all who come through its proxy."""
    slots, mallory, bob = Slots(), Principal("User", "mallory"), Principal("User", "bob")
    found = [slot("/sql", host) for host in hosts]
    hers = [each._replace(user=mallory) for each in found if each is not None]
    with ExitStack() as stack:
        for n in range(TRANSFERS_MAX // SHARE):
            assert not slots.is_full(hers[n % len(hers)])
            stack.enter_context(slots.taken(hers[n % len(hers)]))
        assert all(slots.is_full(each) for each in hers)
        assert not slots.is_full(hers[-1]._replace(user=bob))
    assert not any(slots.is_full(each) for each in hers)
