"""Shared by the verbs that talk to a broker: its address, and how failures are reported."""

import base64
import binascii
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.model.config import INT32_MAX
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.model.named_files import is_passed_on
from smq.model.names import topic_name_problem
from smq.model.printable import printable

if TYPE_CHECKING:
    from smq.client.client import Client
    from smq.client.kafka.cluster import Cluster
    from smq.client.locate import Way
    from smq.client.secure.security import Security

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
PARTITION_MAX = INT32_MAX  # As in Kafka's messages.

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        help="Bootstrap brokers, separated by commas; or a broker's data directory, or its socket.",
        metavar="HOST:PORT",
    ),
]
BrokersDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="The data directory of a broker on this host, instead of --bootstrap."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def _take_command_config(path: str | None) -> None:
    """Have this command, and what it starts, connect as a file of properties says."""
    if path is not None:
        from smq.client.secure.security import PROPERTIES_VARIABLE  # noqa: PLC0415  (as below)

        os.environ[PROPERTIES_VARIABLE] = path


CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        help="A file with properties of Kafka's clients: security.protocol, sasl.… and ssl.…",
        metavar="FILE",
        callback=_take_command_config,
        show_default=False,
    ),
]


def _checked_name(context: typer.Context, name: str) -> str:
    problem = topic_name_problem(name)
    if problem and not context.resilient_parsing:  # During shell completion.
        raise refusal(problem)
    return name


def topic_argument(metavar: str, help_text: str) -> Any:  # noqa: ANN401  (what Typer gives)
    """An argument that names a topic."""
    return typer.Argument(
        metavar=metavar, help=help_text, show_default=False, callback=_checked_name
    )


TopicName = Annotated[str, topic_argument("TOPIC", "The topic.")]


@contextmanager
def cluster_at(bootstrap: str, data_dir: Path | None = None) -> Iterator["Cluster"]:
    """The cluster; a failure in the block ends with one sentence and exit code 1."""
    from smq.client.kafka.cluster import Cluster  # noqa: PLC0415  (NumPy takes its time.)

    bootstrap = bootstrap if data_dir is None else str(data_dir.absolute())
    addresses, security = _way_to(bootstrap)
    with failures_told(bootstrap), Cluster(addresses, security=security) as cluster:
        yield cluster


@contextmanager
def cluster_with(topic: str, bootstrap: str) -> Iterator["Cluster"]:
    """The cluster, if it has the topic; else exits with a hint."""
    with cluster_at(bootstrap) as cluster:
        try:
            yield cluster
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise refusal(
                f"there is no topic {topic}; `smq topic list` shows the topics"
            ) from error


@contextmanager
def client_at(bootstrap: str, transport: str = "auto") -> Iterator["Client"]:
    """The SDK's client of the broker; failures as above."""
    from smq.client.client import connect  # noqa: PLC0415  (as above)

    _way_to(bootstrap)
    with failures_told(bootstrap), connect(bootstrap, transport=transport) as client:
        yield client


def refuse_passed_on_config(command: str) -> None:
    """Exit if the properties are in a pipe that only this process can read."""
    from smq.client.secure.security import PROPERTIES_VARIABLE  # noqa: PLC0415  (as above)

    path = os.environ.get(PROPERTIES_VARIABLE, "")
    if is_passed_on(path):
        raise refusal(
            f"{path} is of this process alone, and {command} starts others that connect too: write "
            "the properties into a file"
        )


def client_security() -> "Security":
    """How to connect: as --command-config and the environment say. Exits with a sentence."""
    from smq.client.secure.security import security_of  # noqa: PLC0415  (as above)

    try:
        return security_of(None)
    except ValueError as error:
        raise refusal(str(error)) from error


def _way_to(bootstrap: str) -> "Way":
    from smq.client.locate import way_to  # noqa: PLC0415  (as above)

    security = client_security()
    try:
        with failures_told(bootstrap):
            return way_to(bootstrap, security)
    except ValueError as error:
        raise refusal(f"--bootstrap: {error}") from error


class BadPeer(PeerError):
    """A peer broke the protocol, and the message is the whole sentence for the user."""


@contextmanager
def failures_told(bootstrap: str) -> Iterator[None]:
    """Turns every failure of a broker into one sentence and exit code 1."""
    try:
        yield
    except BrokerError as error:
        raise refusal(_sentence(error)) from error
    except BadPeer as error:
        raise refusal(str(error)) from error
    except PeerError as error:
        raise refusal(f"the server at {bootstrap} is not a Kafka broker: {error}") from error


def refusal(sentence: str) -> SystemExit:
    """The exit of a verb that failed."""
    return SystemExit(f"smq: {printable(sentence)}")


def checked_text(name: str, bytes_max: int) -> str:
    """A name that Kafka's protocol and the store can have. Exits if it is none."""
    try:
        is_long = len(name.encode()) > bytes_max
    except UnicodeEncodeError as reason:
        raise refusal(f"{name!r} is no text in UTF-8") from reason
    if is_long:
        raise refusal(f"a name has at most {bytes_max} bytes")
    return name


def _sentence(error: BrokerError) -> str:
    sentence = error.message or f"the broker answers {error.code.name}"
    from smq.client.errors import ClosedUnanswered  # noqa: PLC0415  (as above)

    is_there = isinstance(error, ClosedUnanswered)
    if error.code == ErrorCode.BROKER_NOT_AVAILABLE and not is_there:
        sentence += "; start one with `smq serve`, or name another with --bootstrap"
    return sentence


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Split an option's `name=value`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise refusal(f"{option} takes name=value, not {text!r}")
    utf8(text, option)
    return name, value


def utf8(text: str, option: str) -> bytes:
    """The bytes of an argument, which Python has decoded with surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refusal(f"{option} takes UTF-8, not {text!r}") from error


def to_json(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: text if they are UTF-8, else base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: object) -> bytes | None:
    """Decode what `to_json` wrote. Raises ValueError."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded)}:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise ValueError(str(error)) from error
    raise ValueError(f'it must be text, null or {{"base64": …}}, not {value!r}')
