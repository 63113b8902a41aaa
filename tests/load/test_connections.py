"""Connections that are there."""

import resource

import pytest

from smq.load.connections import hold
from smq.testing.smq_broker import SmqBroker


def test_each_is_answered_when_it_opens_and_again_in_turn(smq_session_broker: SmqBroker) -> None:
    held = hold(smq_session_broker.bootstrap, 20)
    assert next(held) == 20
    asked = [next(held) for _ in range(45)]
    assert asked == sorted(asked)
    held.close()


def test_a_broker_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(OSError, match="of 3 connections the broker took 0"):
        next(hold("127.0.0.1:1", 3))


def test_more_than_the_system_allows_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 128))
    with pytest.raises(OSError, match="`ulimit -Hn` is 128"):
        next(hold("127.0.0.1:1", 500))
