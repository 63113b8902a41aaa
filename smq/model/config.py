"""The broker's settings: one frozen record, checked as a whole.

The fields of `Config` are the table of settings: `wal_bytes_max` is the setting `wal.bytes.max`,
`--wal-bytes-max` or SMQ_WAL_BYTES_MAX, with its default, its bounds and its line of documentation.
From it come the parser, `smq serve --print-config`, docs/configuration.md and DescribeConfigs.

    defaults  <  configuration file (TOML)  <  environment (SMQ_…)  <  command line

`parse` returns a Config, or every problem at once, each a sentence. What the machine decides
(cores, memory, directories of the user) is an argument. Names are Kafka's where Kafka has them.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from smq.model.setting import (
    ENVIRONMENT_PREFIX,
    GiB,
    KiB,
    MiB,
    PathOrUrl,
    Setting,
    setting,
    value_of,
)

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

INT32_MAX = 2**31 - 1

# A frame is its header, one batch of at most message.max.bytes, and padding: generous, and round.
FRAME_OVERHEAD_BYTES = 4 * KiB
RING_BYTES_PER_SHARD = 256 * MiB  # Who reads along may stop for a moment, even at full speed.
RING_MEMORY_SHARE = 16  # All rings together take at most this part of the memory.
RING_BYTES_MIN = 4 * MiB
SEGMENT_BYTES_MIN = 1 * MiB
# While one is written, one waits for its sync, one is being sealed and one is recycled.
WAL_SEGMENTS_MIN = 4

DURABILITIES = ("memory", "os", "disk")

_UNSET = Path()  # Paths that are given are made absolute, so that none equals it.


class Machine(NamedTuple):
    """What the defaults depend on."""

    cores: int
    memory_bytes: int
    data_home: Path
    runtime_home: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, valid. 0 or "" where the default is found at start (see `sized`)."""

    data_dir: Path = setting(  # noqa: RUF009
        _UNSET,
        "Where everything is kept. One broker at a time may serve it.",
        default_words="`$XDG_DATA_HOME/smq`, else `~/.local/share/smq`",
    )
    host: str = setting("127.0.0.1", "The address to listen on; `0.0.0.0` is every network.")
    port: int = setting(
        9092,
        "Port of the first shard; shard *i* takes the (i-1)th after it. 0 takes free ones.",
        at_least=0,
        at_most=65535,
    )
    advertise: str = setting(
        "",
        "`host` or `host:port` that clients are told to connect to; the port is the first shard's.",
        default_words="where it listens",
    )
    shards: int = setting(
        0,
        "Worker processes, each a Kafka broker with a port. May change between starts.",
        at_least=1,
        at_most=256,
        default_words="cores less one, at least 1",
    )
    runtime_dir: Path = setting(  # noqa: RUF009
        _UNSET,
        "Directory for sockets between the processes; kept short, mode 0700.",
        default_words="`$XDG_RUNTIME_DIR/smq`, else `/tmp/smq-<uid>`",
    )
    filer_root: PathOrUrl = setting(  # noqa: RUF009
        "",
        "Where sealed segments and payloads lie: a directory, or `s3://bucket/prefix`.",
        default_words="`<data.dir>/filer`",
    )
    filer_s3_endpoint: str = setting(
        "",
        "The server of the bucket, as `https://host:port`.",
        default_words="`$AWS_ENDPOINT_URL`, else Amazon's",
    )
    filer_s3_region: str = setting(
        "", "The region of the bucket.", default_words="`$AWS_REGION`, else us-east-1"
    )
    filer_s3_credentials: str = setting(
        "",
        "File with keys for the bucket, as `~/.aws/credentials`.",
        default_words="the `AWS_` variables, else `~/.aws/credentials`, else the host's role",
    )
    filer_quota_bytes: int = setting(
        -1,
        "Bytes that uploads may take in each namespace; -1 sets no limit.",
        at_least=-1,
    )
    filer_reserve_bytes: int = setting(
        1 * GiB,
        "Uploads are refused when the filer's disk has less room left: the log needs it.",
        at_least=0,
    )
    http_port: int = setting(
        -1,
        "Port of the HTTP door to the filer; 0 takes a free one, -1 opens none.",
        at_least=-1,
        at_most=65535,
    )

    ring_bytes: int = setting(
        0,
        "Shared memory of each log; a whole number of WAL segments.",
        at_least=RING_BYTES_MIN,
        default_words="256 MiB a shard, all rings at most 1/16 of the memory",
    )
    wal_segment_bytes: int = setting(
        0,
        "Size of a file of the write-ahead log.",
        at_least=SEGMENT_BYTES_MIN,
        at_most=1 * GiB,
        default_words="64 MiB, or half of a smaller ring",
    )
    wal_bytes_max: int = setting(
        4 * GiB,
        "What the files of a log may take: half full it seals early, three quarters full it slows "
        "producers, full it refuses them.",
        at_least=WAL_SEGMENTS_MIN * SEGMENT_BYTES_MIN,
    )

    max_connections: int = setting(10_000, "Client connections of one shard.", at_least=1)
    max_sessions: int = setting(
        256,
        "Programs attached to one shard through shared memory; 0 turns it off.",
        at_least=0,
        at_most=1024,
    )
    session_spin_us: int = setting(
        0,
        "How long a shard, after a request through shared memory, looks for the next one before it "
        "sleeps: a lower delay, for a core.",
        at_least=0,
        at_most=1_000_000,
    )
    connections_max_idle_ms: int = setting(
        10 * MINUTE_MS, "A connection without a request for so long is closed.", at_least=1000
    )
    socket_request_max_bytes: int = setting(
        100 * MiB,
        "The largest request; a larger one closes its connection.",
        at_least=64 * KiB,
        at_most=1 * GiB,
    )
    message_max_bytes: int = setting(
        1048588,
        "The largest record batch, where a topic's `max.message.bytes` says nothing else.",
        at_least=1 * KiB,
    )

    num_partitions: int = setting(
        1, "Partitions of a topic created without a number.", at_least=1, at_most=100_000
    )
    auto_create_topics_enable: bool = setting(
        default=True, doc="Create a topic when a client first asks for it."
    )
    durability: str = setting(
        "os",
        "When a record is acknowledged, where a topic's `smq.durability` says nothing else.",
        one_of=DURABILITIES,
    )
    log_retention_ms: int = setting(
        7 * DAY_MS,
        "Age at which records are deleted; -1 keeps them. A topic's `retention.ms` wins.",
        at_least=-1,
    )
    log_retention_bytes: int = setting(
        -1,
        "Size of a partition beyond which its oldest records are deleted; -1 sets none. "
        "A topic's `retention.bytes` wins.",
        at_least=-1,
    )
    log_retention_check_interval_ms: int = setting(
        5 * MINUTE_MS, "How often retention is looked at.", at_least=1
    )
    seal_bytes: int = setting(
        256 * MiB,
        "Sealed when so many bytes of a partition wait and no more come, in files of <= 128 "
        "MiB. A topic's `smq.seal.bytes` wins.",
        at_least=1,
    )
    seal_ms: int = setting(
        10 * MINUTE_MS,
        "A partition is sealed when its oldest record waits so long. A topic's `smq.seal.ms` wins.",
        at_least=1,
    )
    reference_orphan_ms: int = setting(
        1 * DAY_MS,
        "An uploaded payload that no record names is deleted at this age. "
        "A topic's `smq.reference.orphan.ms` wins.",
        at_least=1,
    )
    filer_sweep_ms: int = setting(
        60 * MINUTE_MS, "Files in the filer that nothing names are deleted at this age.", at_least=1
    )
    filer_unfinished_ms: int = setting(
        1 * DAY_MS,
        "An unfinished write to the filer of which nothing has come for so long is forgotten.",
        at_least=1,
    )

    group_initial_rebalance_delay_ms: int = setting(
        3000, "How long the first rebalance of an empty group waits for more members.", at_least=0
    )
    group_min_session_timeout_ms: int = setting(
        6000, "The shortest session timeout a member may ask for.", at_least=1
    )
    group_max_session_timeout_ms: int = setting(
        30 * MINUTE_MS, "The longest session timeout a member may ask for.", at_least=1
    )
    group_max_size: int = setting(INT32_MAX, "Members of a group.", at_least=1)
    offset_metadata_max_bytes: int = setting(
        4096, "Bytes of metadata that may be committed with an offset.", at_least=0
    )
    offsets_retention_minutes: int = setting(
        86_400, "An empty group keeps its offsets for so long: 60 days (Kafka: 7).", at_least=1
    )
    producer_id_expiration_ms: int = setting(
        1 * DAY_MS,
        "A partition may forget an idempotent producer that was silent for so long.",
        at_least=1,
    )

    def text(self) -> str:
        """As a configuration file that would give this very config."""
        lines = (f"{name} = {_toml(value)}" for name, value in self.values().items())
        return "\n".join(lines) + "\n"

    def values(self) -> dict[str, str | int | bool | Path]:
        """Every setting's value under its outside name."""
        return {setting.name: getattr(self, setting.key) for setting in SETTINGS.values()}

    def changed(self) -> dict[str, str | int | bool | Path]:
        """The settings that are not what the documentation says they are by default."""
        return {
            name: value for name, value in self.values().items() if value != SETTINGS[name].default
        }

    def listen_port(self, node_id: int) -> int:
        """The port node `node_id` asks for; 0 takes any."""
        return self.port + node_id - 1 if self.port else 0

    def advertised(self, node_id: int, listen_port: int) -> tuple[str, int]:
        """Host and port that clients are told for a node that listens on `listen_port`."""
        host, port = _host_and_port(self.advertise or bracketed(self.host))
        return host, port + node_id - 1 if port else listen_port

    def sized(self, log_count: int, memory_bytes: int) -> "Config | list[str]":
        """With ring and segment sizes that fit this many logs; or what does not fit."""
        sized, problems = _fitted(self, log_count, memory_bytes)
        return [problem.sentence for problem in problems] or sized


def _table() -> Iterator[Setting]:
    kinds = Config.__annotations__
    for each in fields(Config):
        assert each.default is not MISSING
        rules = dict(each.metadata)
        yield Setting(each.name.replace("_", "."), kinds[each.name], each.default, **rules)


SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _table()}


class _Problem(NamedTuple):
    """A sentence for the user, and the fields of `Config` it is about."""

    sentence: str
    keys: tuple[str, ...] = ()


def parse(
    machine: Machine,
    *,
    file: str = "",
    file_name: str = "configuration file",
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, Any] | None = None,
) -> Config | list[str]:
    """The config these sources give together, or every problem in them.

    `file` is the text of a configuration file, `environment` all variables (ours are picked out),
    `command_line` holds what was given there, under the settings' names.
    """
    problems: list[_Problem] = []
    chosen: dict[str, Any] = {}
    for source, given in (
        (file_name, _of_file(file, file_name, problems)),
        ("environment", _of_environment(environment or {})),
        ("command line", command_line or {}),
    ):
        for name, raw in given.items():
            _choose(chosen, name, raw, source, problems)
    config = _with_machine_defaults(Config(**chosen), machine)
    # A value out of its bounds has its default now, of which nothing is to be said.
    wrong = {key for problem in problems for key in problem.keys}
    problems += [each for each in _relations_broken(config) if wrong.isdisjoint(each.keys)]
    if problems:  # Else the sizes are looked at when the logs have been counted: see `sized`.
        _, misfits = _fitted(config, config.shards, machine.memory_bytes)
        problems += [each for each in misfits if wrong.isdisjoint(each.keys)]
    return [problem.sentence for problem in problems] or config


def _choose(
    chosen: dict[str, Any], name: str, raw: object, source: str, problems: list[_Problem]
) -> None:
    found = SETTINGS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        problems.append(_Problem(f"{name} ({source}): there is no such setting{hint}"))
        return
    try:
        chosen[found.key] = value_of(found, raw)
    except ValueError as reason:
        problems.append(_Problem(f"{name} ({source}): {reason}", (found.key,)))


def _of_file(text: str, name: str, problems: list[_Problem]) -> dict[str, Any]:
    try:
        return dict(_flat("", tomllib.loads(text)))
    except tomllib.TOMLDecodeError as reason:
        problems.append(_Problem(f"{name}: it is not TOML: {reason}"))
        return {}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        variable.removeprefix(ENVIRONMENT_PREFIX).replace("_", ".").lower(): value
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
    }


def _with_machine_defaults(config: Config, machine: Machine) -> Config:
    data_dir = machine.data_home if config.data_dir == _UNSET else config.data_dir
    return replace(
        config,
        data_dir=data_dir,
        shards=config.shards or max(1, machine.cores - 1),
        filer_root=config.filer_root or PathOrUrl(data_dir / "filer"),
        runtime_dir=machine.runtime_home if config.runtime_dir == _UNSET else config.runtime_dir,
    )


def _relations_broken(config: Config) -> Iterator[_Problem]:
    """What is wrong between settings that are right one by one."""
    if config.port and config.port + config.shards - 1 > 65535:
        yield _Problem(
            f"port: {config.shards} shards take ports {config.port} to "
            f"{config.port + config.shards - 1}, but the last port is 65535",
            ("port", "shards"),
        )
    try:
        _host_and_port(config.advertise or bracketed(config.host))
    except ValueError as reason:
        yield _Problem(f"advertise: {reason}", ("advertise", "host"))
    if not config.advertise and config.host in {"0.0.0.0", "::"}:  # noqa: S104
        yield _Problem(
            f"advertise: a broker that listens on {config.host} must be told which address "
            "clients can reach it at, for example --advertise myhost",
            ("advertise", "host"),
        )
    if config.http_port > 0 and 0 <= config.http_port - config.port < config.shards:
        yield _Problem(
            f"http.port: {config.http_port} is the port of a shard", ("http_port", "port", "shards")
        )
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        yield _Problem(
            "group.min.session.timeout.ms: it is above group.max.session.timeout.ms",
            ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
        )
    if config.message_max_bytes + FRAME_OVERHEAD_BYTES > config.socket_request_max_bytes:
        yield _Problem(
            "message.max.bytes: such a batch does not fit in socket.request.max.bytes",
            ("message_max_bytes", "socket_request_max_bytes"),
        )


def _fitted(config: Config, log_count: int, memory_bytes: int) -> tuple[Config, list[_Problem]]:
    """The config with sizes for so many logs, and what does not fit."""
    assert log_count >= config.shards
    budget = min(RING_BYTES_PER_SHARD * config.shards, memory_bytes // RING_MEMORY_SHARE)
    ring = config.ring_bytes or max(budget // log_count, RING_BYTES_MIN)
    segment = config.wal_segment_bytes or _power_of_two_below(min(64 * MiB, ring // 2))
    if not config.ring_bytes:
        ring = max(ring - ring % segment, segment)
    sized = replace(config, ring_bytes=ring, wal_segment_bytes=segment)
    problems = list(_misfits(sized))
    # Memory is not there until it is used: a small machine may have the smallest rings.
    if config.ring_bytes and log_count * ring > memory_bytes:
        remedy = "ring.bytes or shards" if 1 < log_count == config.shards else "ring.bytes"
        sentence = (
            f"ring.bytes: a ring a log, {log_count} x {_rounded(ring)}, is more than this "
            f"machine's memory, {_rounded(memory_bytes)}; lower {remedy}"
        )
        problems.append(_Problem(sentence, ("ring_bytes", "shards")))
    return sized, problems


def _misfits(config: Config) -> Iterator[_Problem]:
    """What is wrong between the sizes of ring, segments and batches."""
    ring, segment = config.ring_bytes, config.wal_segment_bytes
    sizes = ("shards", "ring_bytes", "wal_segment_bytes")
    if ring % segment:
        yield _Problem(
            f"ring.bytes: {ring} is not a multiple of wal.segment.bytes, {segment}", sizes
        )
    if config.wal_bytes_max < WAL_SEGMENTS_MIN * segment:
        yield _Problem(
            f"wal.bytes.max: a log needs {WAL_SEGMENTS_MIN} segments at least, "
            f"{WAL_SEGMENTS_MIN * segment} bytes",
            (*sizes, "wal_bytes_max"),
        )
    frame_bytes_max = min(segment, ring // 2)
    if config.message_max_bytes + FRAME_OVERHEAD_BYTES > frame_bytes_max:
        yield _Problem(
            f"message.max.bytes: a batch of {config.message_max_bytes} bytes must fit in half a "
            f"ring and in a WAL segment, {frame_bytes_max} bytes; raise ring.bytes",
            (*sizes, "message_max_bytes"),
        )


def bracketed(host: str) -> str:
    """A host as it stands before a colon and a port."""
    return f"[{host}]" if ":" in host else host


def _host_and_port(address: str) -> tuple[str, int]:
    """Host, and port or 0. Raises ValueError with a sentence."""
    matched = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?", address)
    if matched is None or not int(matched[3] or 0) <= 65535:
        raise ValueError(f"{address!r} is neither a host nor host:port")
    return matched[1] or matched[2], int(matched[3] or 0)


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)


def _rounded(size: int) -> str:
    """A size as people say it."""
    units = {"TiB": 1024 * GiB, "GiB": GiB, "MiB": MiB, "bytes": 1}
    unit = next(each for each, count in units.items() if size >= count)
    return f"{size / units[unit]:.4g} {unit}"


def _toml(value: object) -> str:
    # A JSON string is a TOML string, and both write true and false alike.
    return json.dumps(str(value) if isinstance(value, Path) else value)


def documentation() -> str:
    """The table of settings in docs/configuration.md."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for each in SETTINGS.values():
        default = each.default_words or f"`{_toml(each.default)}`"
        choices = f" One of {', '.join(each.one_of)}." if each.one_of else ""
        rows.append(f"| `{each.name}` | {default} | {each.doc}{choices} |")
    return "\n".join(rows) + "\n"
