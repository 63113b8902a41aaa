import pytest
import scramp

from smq.security.credentials import ScramMechanism, credential_of, salted

SALT, ITERATIONS = b"sixteen bytes...", 4096


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_has_the_keys_that_another_implementation_derives(
    mechanism: ScramMechanism,
) -> None:
    other = scramp.ScramMechanism(mechanism.sasl_name)
    _, stored_key, server_key, _ = other.make_auth_info("pencil", ITERATIONS, SALT)
    password = salted(mechanism, "pencil", SALT, ITERATIONS)
    ours = credential_of(mechanism, password, SALT, ITERATIONS)
    assert (ours.stored_key, ours.server_key) == (stored_key, server_key)
    assert (ours.salt, ours.iterations) == (SALT, ITERATIONS)
