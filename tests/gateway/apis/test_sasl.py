from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("topic-1", range(1)))


def test_a_login_without_a_reason_is_refused(bench: ShardBench) -> None:
    handshake = bench.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
    assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
    token = bench.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=b"x"))
    assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (
        token.error_message == "SaslAuthenticate request received after successful authentication"
    )
