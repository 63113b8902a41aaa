"""Settings are checked when they are said, by their names."""

from typing import Any

import pytest

from smq.client.consuming.consumer_settings import ConsumerSettings


def test_the_defaults_are_kafkas() -> None:
    settings = ConsumerSettings()
    assert settings.start == "latest"
    assert settings.session_timeout_s == 45
    assert settings.poll_interval_s_max == 300
    assert settings.isolation_level == "read_uncommitted"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"start": "first"}, ValueError),
        ({"group": ""}, ValueError),
        ({"group": 5}, TypeError),
        ({"group": "g", "group_instance_id": ""}, ValueError),
        ({"group_instance_id": "i"}, ValueError),
        ({"assignors": ()}, ValueError),
        ({"assignors": ["sticky"]}, ValueError),
        ({"assignors": "range"}, TypeError),
        ({"assignors": 5}, TypeError),
        ({"assignors": [["range"]]}, TypeError),
        ({"group": "\ud800"}, ValueError),
        ({"group": "g", "auto_commit_s": 0}, ValueError),
        ({"auto_commit_s": 5}, ValueError),
        ({"group": "g", "auto_commit_s": True}, TypeError),
        ({"session_timeout_s": 0}, ValueError),
        ({"poll_interval_s_max": float("nan")}, ValueError),
        ({"session_timeout_s": 3_000_000}, ValueError),
        ({"poll_interval_s_max": float("inf")}, ValueError),
        ({"batch_bytes_max": 2**31}, ValueError),
        ({"inflated_bytes_max": 0}, ValueError),
        ({"inflated_bytes_max": 2**31}, ValueError),
        ({"batch_bytes_max": 1.5}, TypeError),
        ({"spin_us": 10**5000}, ValueError),
        ({"spin_us": None}, TypeError),
        ({"isolation_level": "serializable"}, ValueError),
        ({"isolation_level": 1}, TypeError),
        ({"linger": 1}, TypeError),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(
    settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"{[*settings][-1]}|an assignor is text"):
        ConsumerSettings(**settings)
