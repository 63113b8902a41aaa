from smq.model.errors import ErrorCode
from smq.security.sasl import invalid_credentials, refused


def test_a_failure_is_kafkas_code() -> None:
    assert refused().code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused("words").message == "words"


def test_the_words_name_only_the_mechanism() -> None:
    assert invalid_credentials("SCRAM-SHA-256", renews=False) == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    )
    assert "during re-authentication due" in invalid_credentials("PLAIN", renews=True)
