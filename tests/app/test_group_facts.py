"""Lags are summed for each topic; a broker that does not answer is said so.

With groups in it, `smq status` is tested where clients test the whole broker.
"""

import socket

from smq.app.group_facts import group_facts


def test_a_broker_that_is_not_there_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    reason = group_facts(f"127.0.0.1:{port}")
    assert isinstance(reason, str)
    assert f"127.0.0.1:{port}" in reason
