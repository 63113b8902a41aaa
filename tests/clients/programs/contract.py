"""The contract of the client programs, in any language: arguments and output.

    <program> resume|read|through-a-kill <bootstrap> <topic> <group> <count>

`resume` produces `count` records with compression, the key `k<n>`, the value `v<n>` and a header
`n` that is the value again; reads half of them in a group, commits, leaves; joins again and reads
the rest. It prints `{"first": [values…], "second": [values…], "wrong": n}`, where `wrong` counts
records whose key or header is not what was sent.

`read` only reads, `count` records in a group: `{"values": [values…], "wrong": n}`. Both read with
`read_committed`.

`through-a-kill` produces idempotently while a member of a group reads; prints `halfway` when half
is acknowledged (somebody kills the broker then) and ends when the member has read every value:
`{"values": [values…], "wrong": n}`.

A program that finds the environment variable `SMQ_TEST_LOGIN` logs in with it, in every connection.
It is a JSON object of librdkafka's properties, unescaped UTF-8, each only where the way needs it:
`security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`, and paths of PEM files:
`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

HALFWAY = "halfway"
LOGIN = "SMQ_TEST_LOGIN"
PAUSE_SECONDS = 0.001  # Between two records on the way through a kill: not all before it.


class Task(NamedTuple):
    """The arguments."""

    bootstrap: str
    topic: str
    group: str
    records: int

    @property
    def half(self) -> int:
        return self.records // 2


def record(number: int) -> tuple[bytes, bytes]:
    """Key and value of a record."""
    return b"k%d" % number, b"v%d" % number


def is_wrong(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, str | bytes | None]]
) -> bool:
    """Whether key and header are not those that were sent with this value."""
    number = int((value or b"v-1")[1:])
    return (key, value) != record(number) or list(headers) != [("n", value)]


def login() -> dict[str, str]:
    """librdkafka's properties of the login; none without one."""
    given: dict[str, str] = json.loads(os.environ.get(LOGIN, "{}"))
    return given


def report(**findings: object) -> None:
    sys.stdout.write(json.dumps(findings) + "\n")
    sys.stdout.flush()


def halfway() -> None:
    sys.stdout.write(HALFWAY + "\n")
    sys.stdout.flush()


def run(**modes: Callable[[Task], None]) -> None:
    """Do what the arguments say."""
    mode, bootstrap, topic, group, count = sys.argv[1:]
    modes[mode.replace("-", "_")](Task(bootstrap, topic, group, int(count)))
