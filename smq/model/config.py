"""The broker's settings: one frozen record.

The fields of `Config` are the table of settings: `wal_bytes_max` is the setting `wal.bytes.max`,
`--wal-bytes-max` or SMQ_WAL_BYTES_MAX, with its default, its bounds and its line of documentation.
From it come the parser (`config_sources`), `smq serve --print-config`, docs/configuration.md and
DescribeConfigs; what must hold between settings is in `config_rules`. Names are Kafka's where
Kafka has them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from smq.model.setting import GiB, KiB, MiB, PathOrUrl, Setting, setting

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

INT32_MAX = 2**31 - 1

# A frame is its header, one batch of at most message.max.bytes, and padding: generous, and round.
FRAME_OVERHEAD_BYTES = 4 * KiB
RING_BYTES_MIN = 4 * MiB
SEGMENT_BYTES_MIN = 1 * MiB
# While one is written, one waits for its sync, one is being sealed and one is recycled.
WAL_SEGMENTS_MIN = 4

DURABILITIES = ("memory", "os", "disk")

UNSET = Path()  # Paths that are given are made absolute, so that none equals it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting, valid. 0 or "" where the default is found at start (see config_rules.size)."""

    data_dir: Path = setting(  # noqa: RUF009
        UNSET,
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
        UNSET,
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


def _table() -> Iterator[Setting]:
    kinds = Config.__annotations__
    for each in fields(Config):
        assert each.default is not MISSING
        rules = dict(each.metadata)
        yield Setting(each.name.replace("_", "."), kinds[each.name], each.default, **rules)


SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _table()}


def bracketed(host: str) -> str:
    """A host as it stands before a colon and a port."""
    return f"[{host}]" if ":" in host else host


def _host_and_port(address: str) -> tuple[str, int]:
    """Host, and port or 0. Raises ValueError with a sentence."""
    matched = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?", address)
    if matched is None or not int(matched[3] or 0) <= 65535:
        raise ValueError(f"{address!r} is neither a host nor host:port")
    return matched[1] or matched[2], int(matched[3] or 0)


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
