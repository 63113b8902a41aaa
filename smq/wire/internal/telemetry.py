"""Questions of the front to shards about the metrics that clients push (KIP-714)."""

from typing import NamedTuple

from smq.model.frozen import frozen
from smq.wire.internal.form import Question


class PushingClient(NamedTuple):
    """A client that pushes metrics, and its newest push. Times are 0 if there was none."""

    instance: str
    client_id: str
    software: str
    software_version: str
    host: str
    port: str
    subscribed: list[str]
    interval_ms: int
    push_count: int
    push_ms: int
    pushed_bytes: int
    inflated_bytes: int
    error: int


@frozen
class ListPushes(Question[list[PushingClient]]):
    """Ask for the clients that a shard has seen last, at most this many."""

    count_max: int


@frozen
class PushedMetrics:
    """An answer followed by this many bytes: a client's push, inflated."""

    bytes: int


@frozen
class FindPush(Question[PushedMetrics]):
    """Ask for the newest push of a client instance; empty if there is none."""

    instance: str
