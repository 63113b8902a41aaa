"""Rules between settings, and sizes that are derived from others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES
from smq.model.config import (
    FRAME_OVERHEAD_BYTES,
    RING_BYTES_MIN,
    SETTINGS,
    WAL_SEGMENTS_MIN,
    Config,
)
from smq.model.lag_rules import parse_lag_rules
from smq.model.setting import GiB, MiB
from smq.model.urls import names_user, why_no_url

RING_BYTES_PER_SHARD = 256 * MiB  # A reader may pause for a moment, even at full speed.
WAL_DISK_SHARE = 3  # Sealed segments take as much again, and other users need space too.
WAL_SEGMENTS_DEFAULT_MIN = 8  # However small the disk: its free space is watched all the time.
WAL_BYTES_DEFAULT_MAX = 64 * GiB  # A thousand segments: longer lists take their time.
RING_MEMORY_SHARE = 16  # All rings together take at most 1/16 of memory.
PAGE_CACHE_MEMORY_SHARE = 8
PAGE_CACHE_SEGMENTS_MIN = 3  # One is written, one is written back, one is for readers that pause.


class Problem(NamedTuple):
    """A sentence for the user, and the fields of `Config` that cause it."""

    sentence: str
    keys: tuple[str, ...] = ()


def size(config: Config, log_count: int, memory_bytes: int) -> Config | list[str]:
    """The config with ring and segment sizes for this many logs; or the problems."""
    sized, problems = fitted(config, log_count, memory_bytes)
    return [problem.sentence for problem in problems] or sized


def size_wal(config: Config, log_count: int, disk_bytes: int) -> Config:
    """The config with the WAL's limits; `bytes` are those that the logs have or may take on their
    disk."""
    least = WAL_SEGMENTS_DEFAULT_MIN * config.wal_segment_bytes
    default = min(max(disk_bytes // WAL_DISK_SHARE // log_count, least), WAL_BYTES_DEFAULT_MAX)
    wal = config.wal_bytes_max or default
    kept = wal if config.wal_keep_bytes < 0 else min(config.wal_keep_bytes, wal)
    return replace(config, wal_bytes_max=wal, wal_keep_bytes=kept)


def broken_relations(config: Config) -> Iterator[Problem]:
    """Conflicts between settings that are valid one by one."""
    if config.port and config.port + config.shards - 1 > 65535:
        yield Problem(
            f"port: {config.shards} shards take ports {config.port} to "
            f"{config.port + config.shards - 1}, but the last port is 65535",
            ("port", "shards"),
        )
    try:
        config.advertised(config.node_id, config.port)
    except ValueError as reason:
        yield Problem(f"advertise: {reason}", ("advertise", "host"))
    if not config.advertise and config.host in {"0.0.0.0", "::"}:  # noqa: S104
        yield Problem(
            f"advertise: a broker that listens on {config.host} must be told which address "
            "clients can reach it at, for example --advertise myhost",
            ("advertise", "host"),
        )
    if config.http_port > 0 and 0 <= config.http_port - config.port < config.shards:
        yield Problem(
            f"http.port: {config.http_port} is the port of a shard", ("http_port", "port", "shards")
        )
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        yield Problem(
            "group.min.session.timeout.ms: it is above group.max.session.timeout.ms",
            ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
        )
    if config.message_max_bytes + FRAME_OVERHEAD_BYTES > config.socket_request_max_bytes:
        yield Problem(
            "message.max.bytes: such a batch does not fit in socket.request.max.bytes",
            ("message_max_bytes", "socket_request_max_bytes"),
        )
    if config.metrics_token and config.metrics_tokens_location:
        yield Problem(
            "metrics.tokens.location: metrics.token is set too; put it into that file",
            ("metrics_token", "metrics_tokens_location"),
        )
    yield from _principal_problems(config)
    yield from _alert_problems(config)
    yield from _url_problems(config)


def _principal_problems(config: Config) -> Iterator[Problem]:
    """The names in super.users that are no principals."""
    for each in filter(None, map(str.strip, config.super_users.split(";"))):
        if ":" not in each:
            yield Problem(
                f"super.users: {each!r} is no principal, which has a kind: User:{each}",
                ("super_users",),
            )


def _alert_problems(config: Config) -> Iterator[Problem]:
    """The problems of the rules for lag alerts."""
    try:
        rules = parse_lag_rules(config.lag_alert_rules)
    except ValueError as reason:
        yield Problem(f"lag.alert.rules: {reason}", ("lag_alert_rules",))
        return
    if rules and config.http_port < 0:
        yield Problem(
            "lag.alert.rules: the process that serves HTTP watches them; set http.port",
            ("lag_alert_rules", "http_port"),
        )


def _url_problems(config: Config) -> Iterator[Problem]:
    """The problems of URLs that the broker asks; they may hold secrets, so none is named."""
    catalog = config.iceberg_catalog_uri
    asked = {
        "lag.alert.webhook": config.lag_alert_webhook,
        "otlp.endpoint": config.otlp_endpoint,
        "iceberg.catalog.uri": catalog if catalog.startswith(("http:", "https:")) else "",
    }
    for name, url in asked.items():
        why = why_no_url(url) if url else ""
        if why:
            yield Problem(f"{name}: {why}", (SETTINGS[name].key,))
        elif name == "lag.alert.webhook" and names_user(url):
            sentence = f"{name}: it may have no user and password; its path may hold a token"
            yield Problem(sentence, (SETTINGS[name].key,))


def fitted(config: Config, log_count: int, memory_bytes: int) -> tuple[Config, list[Problem]]:
    """The config with sizes for this many logs, and the problems."""
    assert log_count >= config.shards
    budget = min(RING_BYTES_PER_SHARD * config.shards, memory_bytes // RING_MEMORY_SHARE)
    ring = config.ring_bytes or max(budget // log_count, RING_BYTES_MIN)
    segment = config.wal_segment_bytes or _power_of_two_below(min(64 * MiB, ring // 2))
    if not config.ring_bytes:
        ring = max(ring - ring % segment, segment)
    cached = config.page_cache_bytes or memory_bytes // PAGE_CACHE_MEMORY_SHARE
    if cached > 0:
        cached = max(cached, PAGE_CACHE_SEGMENTS_MIN * segment * log_count)
    sized = replace(config, ring_bytes=ring, wal_segment_bytes=segment, page_cache_bytes=cached)
    problems = list(misfits(sized))
    # Memory is allocated on use: a small machine may still have the smallest rings.
    if config.ring_bytes and log_count * ring > memory_bytes:
        remedy = "ring.bytes or shards" if 1 < log_count == config.shards else "ring.bytes"
        sentence = (
            f"ring.bytes: a ring a log, {log_count} x {_rounded(ring)}, is more than this "
            f"machine's memory, {_rounded(memory_bytes)}; lower {remedy}"
        )
        problems.append(Problem(sentence, ("ring_bytes", "shards")))
    return sized, problems


def misfits(config: Config) -> Iterator[Problem]:
    """Conflicts between the sizes of ring, segments and batches."""
    ring, segment = config.ring_bytes, config.wal_segment_bytes
    sizes = ("shards", "ring_bytes", "wal_segment_bytes")
    if ring % segment:
        yield Problem(
            f"ring.bytes: {ring} is not a multiple of wal.segment.bytes, {segment}", sizes
        )
    if segment % FRAME_ALIGNMENT_BYTES:  # A start could not go on behind the end of one.
        yield Problem(
            f"wal.segment.bytes: {segment} is not a multiple of {FRAME_ALIGNMENT_BYTES}", sizes
        )
    if 0 < config.wal_bytes_max < WAL_SEGMENTS_MIN * segment:
        yield Problem(
            f"wal.bytes.max: a log needs {WAL_SEGMENTS_MIN} segments at least, "
            f"{WAL_SEGMENTS_MIN * segment} bytes",
            (*sizes, "wal_bytes_max"),
        )
    frame_bytes_max = min(segment, ring // 2)
    if config.message_max_bytes + FRAME_OVERHEAD_BYTES > frame_bytes_max:
        yield Problem(
            f"message.max.bytes: a batch of {config.message_max_bytes} bytes must fit in half a "
            f"ring and in a WAL segment, {frame_bytes_max} bytes; raise ring.bytes",
            (*sizes, "message_max_bytes"),
        )


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)


def _rounded(size: int) -> str:
    """A size in the largest unit that fits."""
    units = {"TiB": 1024 * GiB, "GiB": GiB, "MiB": MiB, "bytes": 1}
    unit = next(each for each, count in units.items() if size >= count)
    return f"{size / units[unit]:.4g} {unit}"
