"""The broker's settings: one frozen record.

The fields of `Config` are the table of settings: `wal_bytes_max` is the setting `wal.bytes.max`,
`--wal-bytes-max` or SMQ_WAL_BYTES_MAX, with its default, its bounds and its line of documentation.
The parser (`config_sources`), `smq serve --print-config`, docs/configuration.md and DescribeConfigs
are derived from it; rules between settings are in `config_rules`. A setting that Kafka has too has
Kafka's name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from smq.model.security_settings import (
    LISTENER_PREFIX,
    LISTENER_SETTINGS,
    MECHANISM_SETTINGS,
    SecuritySettings,
)
from smq.model.setting import HIDDEN, GiB, KiB, MiB, PathOrUrl, Setting, Update, setting

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

INT32_MAX = 2**31 - 1

# A frame is a header, one batch of at most message.max.bytes, and padding; rounded up generously.
FRAME_OVERHEAD_BYTES = 4 * KiB
RING_BYTES_MIN = 4 * MiB
SEGMENT_BYTES_MIN = 1 * MiB
# One is written, one waits for its sync, one is being sealed, one is recycled.
WAL_SEGMENTS_MIN = 4

DURABILITIES = ("memory", "os", "disk")
OWNER_READS, GROUP_READS = "0700", "0750"  # Modes of the filer's directories.

HIDDEN_WORDS = "*Secret*: shown nowhere; `file:PATH`, the environment or the configuration file."
UNSET = Path()  # Never equals a given path: those are made absolute.


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SecuritySettings):
    """Every setting, valid. 0 or "" where a start finds the default (see config_rules.size)."""

    data_dir: Path = setting(  # noqa: RUF009
        UNSET,
        "The data directory. One broker at a time may serve it.",
        default_words="`$XDG_DATA_HOME/smq`, else `~/.local/share/smq`",
    )
    host: str = setting(
        "127.0.0.1", "The address to listen on; `0.0.0.0` listens on every interface."
    )
    port: int = setting(
        9092,
        "Port of the first shard; shard *i* listens on this port + *i* - 1. 0 picks free ports.",
        at_least=0,
        at_most=65535,
    )
    advertise: str = setting(
        "",
        "Address that clients connect to, `host` or `host:port`; the port is the first shard's.",
        default_words="the listening address",
    )
    broker_rack: str = setting(
        "",
        "The rack of this host, which clients are told with each broker.",
        default_words="none",
    )
    shards: int = setting(
        0,
        "Number of shards, each a process and a Kafka broker. May change between starts.",
        at_least=1,
        at_most=256,
        default_words="number of cores minus 1, at least 1",
    )
    node_id: int = setting(
        1,
        "Id of the first shard as a Kafka broker; shard *i* has this id + *i* - 1. May change "
        "between starts.",
        at_least=0,
        at_most=1_000_000,
    )
    runtime_dir: Path = setting(  # noqa: RUF009
        UNSET,
        "Directory of the unix sockets, mode 0700, or 0711 with an authorizer; needs a short path.",
        default_words="`$XDG_RUNTIME_DIR/smq`, else `/tmp/smq-<uid>`",
    )
    filer_root: PathOrUrl = setting(  # noqa: RUF009
        "",
        "Location of sealed segments and payloads: a directory, or `s3://bucket/prefix`.",
        default_words="`<data.dir>/filer`",
    )
    filer_mode: str = setting(
        OWNER_READS,
        "Mode of the filer's directories, and but for `x` of its files: 0750 lets the group of the "
        "broker's process read sealed segments and payloads.",
        one_of=(OWNER_READS, GROUP_READS),
    )
    filer_s3_endpoint: str = setting(
        "",
        "Endpoint of the bucket, `https://host:port`.",
        default_words="`$AWS_ENDPOINT_URL`, else Amazon's",
    )
    filer_s3_region: str = setting(
        "", "The region of the bucket.", default_words="`$AWS_REGION`, else us-east-1"
    )
    filer_s3_credentials: str = setting(
        "",
        "File with keys for the bucket, in the format of `~/.aws/credentials`.",
        default_words="the `AWS_` variables, else `~/.aws/credentials`, else the host's role",
    )
    filer_quota_bytes: int = setting(
        -1,
        "Maximum bytes of uploads in each namespace; -1: no limit.",
        at_least=-1,
        update=Update.CLUSTER_WIDE,
    )
    filer_reserve_bytes: int = setting(
        1 * GiB,
        "Disk space reserved for the log: uploads that would leave less are refused.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    http_port: int = setting(
        -1,
        "Port of the HTTP door to the filer; 0 picks a free port, -1 turns HTTP off.",
        at_least=-1,
        at_most=65535,
    )
    lag_alert_rules: str = setting(
        "",
        "When a consumer group is too far behind: `GROUP: records > N for 1m` or "
        "`GROUP: seconds > N for 5m`, separated by commas; `*` in GROUP stands for any text. "
        "Needs `http.port`.",
        update=Update.CLUSTER_WIDE,
    )
    lag_alert_webhook: str = setting(
        "",
        "URL that each alert is posted to as JSON, beside the line on stderr. Redirects are not "
        "followed.",
        secret=True,
    )

    otlp_endpoint: str = setting(
        "",
        "URL that metrics are sent to by OTLP over HTTP, `http://collector:4318/v1/metrics`. Needs "
        "`http.port` and the extra `otel`.",
        secret=True,
    )
    otlp_interval_ms: int = setting(
        60_000, "How often they are sent.", at_least=1000, at_most=60 * MINUTE_MS
    )
    iceberg_catalog_uri: str = setting(
        "",
        "Catalog of the tables of topics with `smq.table=iceberg`: `http://…` or `https://…` of a "
        "REST catalog, or SQLAlchemy's URL of a database.",
        default_words="`<data.dir>/iceberg.sqlite`",
        secret=True,
    )
    iceberg_catalog_warehouse: str = setting(
        "", "The warehouse that a REST catalog is asked for.", default_words="the catalog's own"
    )
    iceberg_catalog_properties: str = setting(
        "",
        "TOML file with more properties of the catalog as pyiceberg names them, such as `token`.",
        default_words="none",
    )

    ring_bytes: int = setting(
        0,
        "Size of each log's ring in shared memory; a multiple of `wal.segment.bytes`.",
        at_least=RING_BYTES_MIN,
        default_words="256 MiB per shard; all rings together at most 1/16 of memory",
    )
    wal_segment_bytes: int = setting(
        0,
        "Size of a segment file of the write-ahead log; a multiple of 64.",
        at_least=SEGMENT_BYTES_MIN,
        at_most=1 * GiB,
        default_words="64 MiB, or half of a smaller ring",
    )
    wal_bytes_max: int = setting(
        0,
        "Maximum size of a log's WAL. When half of it is unsealed, the log is sealed early; at 3/4 "
        "producers are throttled, when full they are refused. Less is used while the disk has less "
        "than 5 % or 4 GiB free.",
        at_least=WAL_SEGMENTS_MIN * SEGMENT_BYTES_MIN,
        default_words="a third of what the disk has free at the start, all logs together; "
        "at most 64 GiB",
    )
    page_cache_bytes: int = setting(
        0,
        "How much of all WALs the page cache keeps, three segments of each at least. What is older "
        "is written to the disk, dropped, and read past the page cache; -1: the system decides.",
        at_least=-1,
        default_words="an eighth of memory",
    )
    wal_keep_bytes: int = setting(
        -1,
        "How much of `wal.bytes.max` sealed segments may take. They are read there until their "
        "space is needed; with 0 they are freed at once, and read from the filer.",
        at_least=-1,
        default_words="all of it",
        update=Update.PER_BROKER,
    )

    max_connections: int = setting(
        10_000, "Maximum client connections of one shard.", at_least=1, update=Update.PER_BROKER
    )
    max_sessions: int = setting(
        256,
        "Maximum programs attached to one shard through shared memory; 0 turns this off.",
        at_least=0,
        at_most=1024,
        update=Update.PER_BROKER,
    )
    session_spin_us: int = setting(
        0,
        "How long a shard polls for the next request through shared memory before it sleeps. "
        "Lowers latency, costs a core.",
        at_least=0,
        at_most=1_000_000,
        update=Update.PER_BROKER,
    )
    slow_request_ms: int = setting(
        100,
        "A request that takes longer is kept for `/debug/slow`; what its client asked to wait for "
        "does not count.",
        at_least=1,
        at_most=60 * MINUTE_MS,
    )
    connections_max_idle_ms: int = setting(
        10 * MINUTE_MS,
        "A connection without a request for this long is closed.",
        at_least=1000,
        update=Update.PER_BROKER,
    )
    socket_request_max_bytes: int = setting(
        100 * MiB,
        "Maximum size of a request; a larger one closes its connection.",
        at_least=64 * KiB,
        at_most=1 * GiB,
    )
    message_max_bytes: int = setting(
        1048588,
        "Maximum size of a record batch. A topic's `max.message.bytes` takes precedence.",
        at_least=1 * KiB,
        at_most=INT32_MAX,
        update=Update.PER_BROKER,
    )

    num_partitions: int = setting(
        1,
        "Partitions of a topic that is created without a partition count.",
        at_least=1,
        at_most=100_000,
        update=Update.CLUSTER_WIDE,
    )
    auto_create_topics_enable: bool = setting(
        default=True,
        doc="Create a topic when a client first asks for it.",
        update=Update.PER_BROKER,
    )
    legacy_formats: bool = setting(
        default=False,
        doc="Serve clients from before Kafka 0.11: Produce 0-2 and Fetch 0-3 convert message "
        "formats 0 and 1, and the versions of ListOffsets, OffsetCommit, OffsetFetch and "
        "CreateTopics that Kafka 4 dropped are taken.",
    )
    durability: str = setting(
        "os",
        "When a record is acknowledged. A topic's `smq.durability` takes precedence.",
        one_of=DURABILITIES,
        update=Update.PER_BROKER,
    )
    log_retention_ms: int = setting(
        7 * DAY_MS,
        "Age at which records are deleted; -1: never. A topic's `retention.ms` takes precedence.",
        at_least=-1,
        update=Update.PER_BROKER,
    )
    log_retention_bytes: int = setting(
        -1,
        "Size of a partition above which its oldest records are deleted; -1: no limit. "
        "A topic's `retention.bytes` takes precedence.",
        at_least=-1,
        update=Update.PER_BROKER,
    )
    log_retention_check_interval_ms: int = setting(
        5 * MINUTE_MS, "Interval between retention checks.", at_least=1, update=Update.CLUSTER_WIDE
    )
    seal_bytes: int = setting(
        256 * MiB,
        "A partition is sealed when this many unsealed bytes wait and it has stopped growing, in "
        "files of at most 128 MiB. A topic's `smq.seal.bytes` takes precedence.",
        at_least=1,
        update=Update.PER_BROKER,
    )
    seal_ms: int = setting(
        10 * MINUTE_MS,
        "A partition is sealed when its oldest unsealed record is this old. A topic's "
        "`smq.seal.ms` takes precedence.",
        at_least=1,
        update=Update.PER_BROKER,
    )
    seal_late_ms: int = setting(
        MINUTE_MS,
        "Sealing, retention, compaction and lake tables wait for idle cores, but no longer than "
        "this, and not while a log is short of space. 0: they never wait.",
        at_least=0,
    )
    reference_orphan_ms: int = setting(
        1 * DAY_MS,
        "Age at which an uploaded payload that no record refers to is deleted. "
        "A topic's `smq.reference.orphan.ms` takes precedence.",
        at_least=1,
        update=Update.PER_BROKER,
    )
    filer_sweep_ms: int = setting(
        60 * MINUTE_MS,
        "Time between two sweeps. A segment file is deleted when two sweeps in a row have found "
        "that the manifest does not name it; files stay so long, too, that were merged into "
        "another.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
    filer_unfinished_ms: int = setting(
        1 * DAY_MS,
        "An unfinished write to the filer without progress for this long is discarded.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )

    group_initial_rebalance_delay_ms: int = setting(
        3000,
        "Time that the first rebalance of an empty group waits for more members.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    group_min_session_timeout_ms: int = setting(
        6000, "Minimum session timeout of a member.", at_least=1, update=Update.CLUSTER_WIDE
    )
    group_max_session_timeout_ms: int = setting(
        30 * MINUTE_MS,
        "Maximum session timeout of a member.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
    group_max_size: int = setting(
        INT32_MAX, "Maximum members of a group.", at_least=1, update=Update.CLUSTER_WIDE
    )
    offset_metadata_max_bytes: int = setting(
        4096,
        "Maximum metadata bytes committed with an offset.",
        at_least=0,
        update=Update.CLUSTER_WIDE,
    )
    transaction_max_timeout_ms: int = setting(
        15 * MINUTE_MS,
        "Maximum time that a producer may ask for a transaction to stay open.",
        at_least=1,
        at_most=2**31 - 1,
        update=Update.CLUSTER_WIDE,
    )
    transactional_id_expiration_ms: int = setting(
        7 * DAY_MS,
        "A transactional id that nobody uses for this long is forgotten.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
    offsets_retention_minutes: int = setting(
        7 * 24 * 60,
        "How long a group without members keeps its offsets, and one with members those of topics "
        "that it no longer reads.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
    grpc_offsets_retention_minutes: int = setting(
        31 * 24 * 60,
        "The same for a group of SeaweedMQ's subscribers, if longer: they may be away 30 days.",
        at_least=1,
        update=Update.CLUSTER_WIDE,
    )
    producer_id_expiration_ms: int = setting(
        1 * DAY_MS,
        "A partition may forget an idempotent producer that was idle for this long.",
        at_least=1,
        update=Update.PER_BROKER,
    )

    def text(self) -> str:
        """This config as a configuration file; a comment stands for a secret."""
        lines = (
            f"# {name} is set, and hidden" if value == HIDDEN else f"{name} = {_toml(value)}"
            for name, value in self.values().items()
        )
        return "\n".join(lines) + "\n"

    def values(self) -> dict[str, object]:
        """Every setting's value by its public name, as it may be shown: secrets are hidden."""
        own = {each.name: each.shown(getattr(self, each.key)) for each in SETTINGS.values()}
        return own | {name: setting_of(name).shown(value) for name, value in self.listener_settings}

    def changed(self) -> dict[str, object]:
        """The settings that differ from the documented defaults."""
        return {
            name: value
            for name, value in self.values().items()
            if name not in SETTINGS or value != SETTINGS[name].default
        }

    @property
    def log_dir(self) -> Path:
        """The directory of the logs."""
        return self.data_dir / "logs"

    @property
    def filer_is_local(self) -> bool:
        """Whether the filer is a directory."""
        return "://" not in self.filer_root

    @property
    def filer_lies_in_data_dir(self) -> bool:
        """Whether the filer is a directory of the data directory."""
        return self.filer_is_local and Path(self.filer_root).is_relative_to(self.data_dir)

    @property
    def node_ids(self) -> range:
        """The ids of all nodes: each shard is one."""
        return range(self.node_id, self.node_id + self.shards)

    def listen_port(self, node_id: int) -> int:
        """The port that node `node_id` listens on; 0: any free port."""
        return self.port + self.node_ids.index(node_id) if self.port else 0

    def advertised(self, node_id: int, listen_port: int) -> tuple[str, int]:
        """The advertised host and port of a node that listens on `listen_port`."""
        host, port = host_and_port(self.advertise or bracketed(self.host))
        return host, port + self.node_ids.index(node_id) if port else listen_port


def _table() -> Iterator[Setting]:
    inherited = SecuritySettings.__annotations__
    kinds = {**Config.__annotations__, **inherited}
    for each in sorted(fields(Config), key=lambda each: each.name in inherited):
        rules = dict(each.metadata)
        if rules.pop("is_internal", False):
            continue
        assert each.default is not MISSING
        yield Setting(each.name.replace("_", "."), kinds[each.name], each.default, **rules)


SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _table()}


def setting_of(name: str) -> Setting:
    """The setting of this name, which may be one listener's. Raises KeyError."""
    found = SETTINGS.get(name)
    if found is None and name.startswith(LISTENER_PREFIX):
        _, _, suffix = name.removeprefix(LISTENER_PREFIX).partition(".")
        _, _, of_mechanism = suffix.partition(".")
        if suffix in LISTENER_SETTINGS:
            found = SETTINGS[suffix]
        elif of_mechanism in MECHANISM_SETTINGS:
            found = SETTINGS[of_mechanism]
    if found is None:
        raise KeyError(name)
    return found


def bracketed(host: str) -> str:
    """A host, in brackets if it is an IPv6 address."""
    return f"[{host}]" if ":" in host else host


def host_and_port(address: str) -> tuple[str, int]:
    """Host, and port or 0. Raises ValueError with a sentence."""
    matched = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?", address)
    if matched is None or not int(matched[3] or 0) <= 65535:
        raise ValueError(f"{address!r} is not a host or host:port")
    return matched[1] or matched[2], int(matched[3] or 0)


def _toml(value: object) -> str:
    # A JSON string is a TOML string, and both write true and false alike.
    return json.dumps(str(value) if isinstance(value, Path) else value)


def documentation() -> str:
    """The table of settings in docs/configuration.md."""
    rows = ["| setting | default | changes | meaning |", "|---|---|---|---|"]
    for each in SETTINGS.values():
        default = each.default_words or f"`{_toml(each.default)}`"
        choices = f" One of {each.choices}." if each.one_of else ""
        secret = f" {HIDDEN_WORDS}" if each.secret else ""
        about = f"{each.doc}{choices}{secret}"
        rows.append(f"| `{each.name}` | {default} | {each.update.value} | {about} |")
    return "\n".join(rows) + "\n"
