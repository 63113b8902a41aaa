"""A token endpoint that never answers: of who waits for it the time passes."""

from typing import Any

import pytest

from smq.client.secure.security import Security
from smq.client.secure.tokens import TokenEndpoint
from smq.testing.stepped_clock import SteppedClock

SAID = r"the token endpoint at issuer\.example gives no whole answer"


def silent_endpoint(
    monkeypatch: pytest.MonkeyPatch, clock: SteppedClock
) -> tuple[Security, list[float]]:
    """A login with its tokens, and how many seconds each question has waited."""
    waited = list[float]()

    def silent(*asked: Any) -> tuple[int, bytes]:
        waited.append(asked[-1].left_s())
        clock.step(waited[-1])
        raise TimeoutError

    monkeypatch.setattr("smq.client.secure.tokens.posted", silent)
    endpoint = TokenEndpoint("https://issuer.example/token", "a", "s3cret")
    return Security(None, "OAUTHBEARER", tokens=endpoint), waited
