"""docs/rotation.md, from its beginning to its end."""

import pytest

from tests.docs.guides import needs_a_namespace, walked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1100), needs_a_namespace]


def test_the_guide_of_rotation_replaces_all_secrets_of_a_running_broker() -> None:
    said = walked("rotation")
    assert "alice can log in with SCRAM-SHA-256\n" in said
    assert "alice can log in with SCRAM-SHA-512\n" in said
    for what in ("certificates are", "the password is", "the token is"):
        assert f"{what} replaced\n" in said
