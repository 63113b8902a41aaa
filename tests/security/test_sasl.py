from smq.model.errors import ErrorCode
from smq.security.sasl import invalid_credentials


def test_a_failure_names_only_the_mechanism() -> None:
    failure = invalid_credentials("SCRAM-SHA-256")
    assert failure.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failure.message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    )
