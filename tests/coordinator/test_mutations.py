"""A client that creates too many partitions must wait."""

import pytest

from smq.coordinator.mutations import Mutations
from smq.model.client_quotas import CLIENT, MUTATIONS, USER, key_of
from smq.model.errors import BrokerError, ErrorCode

QUOTAS = {key_of({CLIENT: "c"}): {MUTATIONS: "1.0"}}


def test_a_change_goes_on_while_nothing_is_owed() -> None:
    mutations = Mutations()
    first = mutations.of(QUOTAS, "u", "c", 0, strict=True)
    first.take(15)
    assert first.throttle_ms == 5001
    second = mutations.of(QUOTAS, "u", "c", 0, strict=True)
    with pytest.raises(BrokerError) as refused:
        second.take(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_ms == 5001
    old = mutations.of(QUOTAS, "u", "c", 0, strict=False)
    old.take(1)
    assert old.throttle_ms == 6001
    later = mutations.of(QUOTAS, "u", "c", 6001, strict=True)
    later.take(1)


def test_a_client_that_logs_in_is_charged_as_its_user() -> None:
    quotas, mutations = {key_of({USER: "u"}): {MUTATIONS: "1.0"}}, Mutations()
    mutations.of(quotas, "u", "c", 0, strict=True).take(15)
    with pytest.raises(BrokerError):
        mutations.of(quotas, "u", "d", 0, strict=True).take(1)
    assert not mutations.of(quotas, "v", "c", 0, strict=True).is_limited


def test_without_a_quota_nothing_is_charged() -> None:
    charge = Mutations().of(QUOTAS, "u", None, 0, strict=True)
    assert not charge.is_limited
    charge.take(1_000_000)
    assert charge.throttle_ms == 0
