"""What must hold between settings, and sizes that follow from others."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.model.config import SETTINGS, Config
from smq.model.config_rules import (
    WAL_BYTES_DEFAULT_MAX,
    WAL_SEGMENTS_DEFAULT_MIN,
    misfits,
    size,
    size_wal,
)
from smq.model.setting import GiB, KiB, MiB
from tests.model.configs import config_of, problems_of, sized


def test_shards_must_find_their_ports() -> None:
    (problem,) = problems_of(command_line={"port": 65535, "shards": 2})
    assert "the last port is 65535" in problem
    assert config_of(command_line={"port": 0, "shards": 2}).listen_port(2) == 0
    assert config_of(command_line={"port": 100, "shards": 2}).listen_port(2) == 101


def test_listening_everywhere_needs_an_address_to_advertise() -> None:
    (problem,) = problems_of(command_line={"host": "0.0.0.0"})
    assert "--advertise" in problem
    config = config_of(command_line={"host": "0.0.0.0", "advertise": "myhost"})
    assert config.advertised(1, 9092) == ("myhost", 9092)


@pytest.mark.parametrize("wrong", ["a:b", "a:70000", "[::1", ":9", "a b", "fd00::1"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    (problem,) = problems_of(command_line={"advertise": wrong})
    assert problem.startswith("advertise: ")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 9},
            "above group.max",
        ),
        (
            {"message.max.bytes": "2MiB", "socket.request.max.bytes": "1MiB"},
            "does not fit in socket.request.max.bytes",
        ),
        ({"lag.alert.rules": "g: late", "http.port": 0}, "lag.alert.rules: 'g: late' is no rule"),
        ({"lag.alert.rules": "g: records > 1 for 1m"}, "lag.alert.rules: the process that serves"),
        ({"lag.alert.webhook": "ftp://x"}, "it is no http:// or https:// URL"),
        ({"lag.alert.webhook": "http://[s3cret/x"}, "it is no http:// or https:// URL"),
        ({"lag.alert.webhook": "http:///s3cret"}, "it is no http:// or https:// URL"),
        ({"lag.alert.webhook": "http://h:port/"}, "it is no http:// or https:// URL"),
        ({"lag.alert.webhook": "http://h/s3cret x"}, "percent-encode them"),
        ({"lag.alert.webhook": "http://h/s3cret\u00e9"}, "percent-encode them"),
        ({"lag.alert.webhook": "http://u:s3cret@h/"}, "it may have no user and password"),
        ({"metrics.token": "a", "metrics.tokens.location": "b"}, "metrics.token is set too"),
        ({"otlp.endpoint": "collector:4318"}, "otlp.endpoint: it is no http:// or https:// URL"),
        ({"iceberg.catalog.uri": "http://u:s3cret@h:x/"}, "it is no http:// or https:// URL"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], words: str) -> None:
    (problem,) = problems_of(command_line=given)
    assert words in problem


@pytest.mark.parametrize(
    ("shards", "log_count", "ring", "sentence"),
    [
        (1, 1, "1TiB", "1 x 1 TiB, is more than this machine's memory, 24 GiB; lower ring.bytes"),
        (
            2,
            2,
            "16GiB",
            "2 x 16 GiB, is more than this machine's memory, 24 GiB; lower ring.bytes or shards",
        ),
        (
            1,
            7,
            "3584MiB",
            "7 x 3.5 GiB, is more than this machine's memory, 24 GiB; lower ring.bytes",
        ),
    ],
)
def test_rings_that_take_more_than_the_memory_are_refused(
    shards: int, log_count: int, ring: str, sentence: str
) -> None:
    config = config_of(command_line={"shards": shards, "ring.bytes": ring})
    assert size(config, log_count, 24 * GiB) == [f"ring.bytes: a ring a log, {sentence}"]
    assert isinstance(size(config, log_count, 2 * log_count * config.ring_bytes), Config)


def test_a_machine_too_small_for_its_smallest_rings_is_served_all_the_same() -> None:
    assert sized(config_of(command_line={"shards": 256}), 256, 512 * MiB).ring_bytes == 4 * MiB


def test_a_ring_is_256_mib_where_there_is_memory() -> None:
    config = sized(config_of(), 3, 64 * GiB)
    assert (config.ring_bytes, config.wal_segment_bytes) == (256 * MiB, 64 * MiB)


@given(
    shards=st.integers(1, 16),
    more_logs=st.integers(0, 16),
    memory_bytes=st.integers(2 * GiB, 1024 * GiB),
)
def test_rings_fit_the_memory_and_segments_divide_them(
    shards: int, more_logs: int, memory_bytes: int
) -> None:
    config = config_of(command_line={"shards": shards})
    config = sized(config, shards + more_logs, memory_bytes)
    assert config.ring_bytes % config.wal_segment_bytes == 0
    assert config.ring_bytes // config.wal_segment_bytes >= 2
    at_least = (shards + more_logs) * 4 * MiB
    assert config.ring_bytes * (shards + more_logs) <= max(at_least, memory_bytes // 16)


def test_the_page_cache_keeps_an_eighth_of_memory_and_three_segments_a_log() -> None:
    assert sized(config_of(), 3, 64 * GiB).page_cache_bytes == 8 * GiB
    assert sized(config_of(), 40, 2 * GiB).page_cache_bytes == 256 * MiB
    small = sized(config_of(), 64, 512 * MiB)
    assert small.page_cache_bytes == 3 * 64 * small.wal_segment_bytes > 64 * MiB


@pytest.mark.parametrize(("given_bytes", "kept_bytes"), [(GiB, GiB), (MiB, 576 * MiB), (-1, -1)])
def test_a_given_page_cache_stays_if_it_holds_three_segments_a_log(
    given_bytes: int, kept_bytes: int
) -> None:
    config = config_of(command_line={"page.cache.bytes": given_bytes})
    assert sized(config, 3, 64 * GiB).page_cache_bytes == kept_bytes


def test_sizes_that_do_not_fit_are_refused_all_at_once() -> None:
    given = {"ring.bytes": "9MiB", "wal.segment.bytes": "2MiB", "message.max.bytes": "8MiB"}
    config = config_of(command_line=given | {"wal.bytes.max": "4MiB"})
    problems = size(config, 3, GiB)
    assert isinstance(problems, list)
    assert [problem.split(":")[0] for problem in problems] == [
        "ring.bytes",
        "wal.bytes.max",
        "message.max.bytes",
    ]


def test_a_small_machine_still_holds_a_default_message() -> None:
    config = sized(config_of(command_line={"shards": 1}), 1, 64 * MiB)
    assert config.ring_bytes == 4 * MiB
    assert config.message_max_bytes + 4 * KiB <= config.ring_bytes // 2


def test_the_http_port_is_no_shards() -> None:
    given = {"port": 9092, "shards": 2}
    (problem,) = problems_of(command_line={**given, "http.port": 9093})
    assert problem == "http.port: 9093 is the port of a shard"
    for port in (-1, 0, 9091, 9094):
        assert config_of(command_line={**given, "http.port": port}).http_port == port


def test_a_segment_ends_where_a_frame_may_begin() -> None:
    """The broker served, and ended at its next start."""
    least = SETTINGS["wal.segment.bytes"].at_least or 0
    for segment, problems in ((least, 0), (least + 4, 1)):
        changes = {"wal.segment.bytes": segment, "ring.bytes": 8 * segment}
        found = misfits(config_of(command_line=changes | {"message.max.bytes": 1024}))
        said = [each.sentence for each in found]
        assert len(said) == problems, said
        assert all(f"{segment} is not a multiple of 64" in each for each in said)


def test_the_wal_takes_a_share_of_the_disk_and_what_is_given_stays() -> None:
    config = sized(config_of(), 3, 16 * GiB)
    assert size_wal(config, 3, 90 * GiB).wal_bytes_max == 10 * GiB
    assert size_wal(config, 3, 90 * GiB).wal_keep_bytes == 10 * GiB
    assert size_wal(config, 3, 6000 * GiB).wal_bytes_max == WAL_BYTES_DEFAULT_MAX
    smallest = size_wal(config, 3, 1).wal_bytes_max
    assert smallest == WAL_SEGMENTS_DEFAULT_MIN * config.wal_segment_bytes
    given = sized(config_of(command_line={"wal.bytes.max": GiB, "wal.keep.bytes": 0}), 3, 16 * GiB)
    assert size_wal(given, 3, 90 * GiB) == given
