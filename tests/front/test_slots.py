"""Slots of pages and of transfers, and shares of addresses beyond loopback."""

from contextlib import ExitStack

import pytest

from smq.front.slots import PAGES_MAX, SHARE, TRANSFERS_MAX, RequestSlot, Slots, slot_of


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
