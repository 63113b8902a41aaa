"""SaslHandshake (key 17), versions 0-1; SaslAuthenticate (key 36), versions 0-2.

What a connection says to log in is read before there are requests: gateway.login. Here are those
that come when there is nothing to log in to, or after a login that need not be renewed.

- SaslHandshake and SaslAuthenticate: ILLEGAL_SASL_STATE, as Kafka does.
"""

from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.wire.generated.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def shake_hands(_request: SaslHandshakeRequest, _context: ShardContext) -> SaslHandshakeResponse:
    """Refuse."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def authenticate(
    _request: SaslAuthenticateRequest, _context: ShardContext
) -> SaslAuthenticateResponse:
    """Refuse."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
