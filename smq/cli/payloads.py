"""`smq payload put|get|list`: the payloads that records refer to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    cluster_at,
    refusal,
)
from smq.cli.output import say, write
from smq.cli.status import size
from smq.model.catalog import NAMESPACE_DEFAULT
from smq.model.errors import StoreError
from smq.model.references import (
    CONTENT_TYPE_DEFAULT,
    NotAHandle,
    Reference,
    directory_of,
    facts_of_id,
)

if TYPE_CHECKING:
    from smq.client.reference import Payloads
    from smq.filer.store import Facts, Store

app = typer.Typer(help="Upload, download and list payloads.", no_args_is_help=True)
COUNT_MAX = 1000
PIECE_BYTES = 4 * 1024 * 1024


@app.command(epilog='JSON: {"topic", "id", "length", "crc32c", "content_type", "offset"}')
def put(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to upload.")],
    *,
    content_type: Annotated[
        str, typer.Option("--content-type", help="The payload's content type.")
    ] = CONTENT_TYPE_DEFAULT,
    key: Annotated[str | None, typer.Option("--key", help="The key of the record.")] = None,
    only_upload: Annotated[
        bool, typer.Option("--only-upload", help="Send no record that refers to it.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Upload a file, and send a record that refers to it."""
    offset = None
    with client_at(bootstrap) as client, _failures_told(file):
        reference = client.upload(topic, file, content_type=content_type)
        if not only_upload:
            with client.producer() as producer:
                sent = producer.send_handle(
                    topic, reference, key=None if key is None else key.encode()
                )
                offset = sent.result().offset
    facts = {
        "topic": topic,
        "id": reference.id,
        "length": reference.length,
        "crc32c": f"{reference.crc32c:08x}",
        "content_type": reference.content_type,
        "offset": offset,
    }
    where = "" if offset is None else f" at offset {offset}"
    say(json.dumps(facts) if as_json else f"{reference.id}{where}")


@app.command()
def get(
    topic: TopicName,
    payload_id: Annotated[
        str, typer.Argument(metavar="ID", help="Its id, as `put` and `list` print it.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The file to write; default: standard output."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Download a payload; its length and CRC-32C are checked."""
    try:
        length, crc32c = facts_of_id(payload_id)
    except NotAHandle as error:
        raise refusal(f"{error}; `smq payload list {topic}` shows them") from error
    reference = Reference(payload_id, length, crc32c)
    with _payloads_at(bootstrap) as payloads, _failures_told(file):
        payload = payloads.of_handle(topic, reference.handle())
        if file is not None:
            payload.save(file)
            return
        content = payload.view()
        for at in range(0, len(content), PIECE_BYTES):
            write(bytes(content[at : at + PIECE_BYTES]))


@app.command(
    "list", epilog='JSON: {"topic", "payloads": [{"id", "length"}], "more": whether there are more}'
)
def list_payloads(
    topic: TopicName,
    *,
    count: Annotated[
        int, typer.Option("--count", min=1, help="Maximum number of payloads.")
    ] = COUNT_MAX,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List a topic's payloads, the oldest first."""
    found: list[tuple[str, int]] = []
    has_more = False
    with _payloads_at(bootstrap) as payloads, _failures_told(None):
        prefix = directory_of(NAMESPACE_DEFAULT, topic)
        for each in _listed(payloads, prefix):
            has_more = len(found) == count
            if has_more:
                break
            found.append((each.key.removeprefix(prefix), each.length))
    if as_json:
        rows = [{"id": payload_id, "length": length} for payload_id, length in found]
        say(json.dumps({"topic": topic, "payloads": rows, "more": has_more}))
        return
    for payload_id, length in found:
        say(f"{payload_id} {size(length):>10}")
    if has_more:
        say("… and more; --count shows them")


def _listed(payloads: "Payloads", prefix: str) -> "Iterator[Facts]":
    from smq.client.remote_filer import RemoteFiler  # noqa: PLC0415  (as below)

    store = payloads.store
    if isinstance(store, RemoteFiler):
        raise refusal("the broker's filer is on another host; list its payloads there")
    return cast("Store", store).list(prefix)  # Every other place is one.


@contextmanager
def _payloads_at(bootstrap: str) -> "Iterator[Payloads]":
    from smq.client.facts import broker_facts  # noqa: PLC0415  (NumPy takes its time.)
    from smq.client.reference import Payloads  # noqa: PLC0415  (as above)

    with cluster_at(bootstrap) as cluster:
        yield Payloads(lambda: cluster.retrying(lambda: broker_facts(cluster)))


@contextmanager
def _failures_told(file: Path | None) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise refusal(str(error)) from error
    except OSError as error:
        raise refusal(f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise refusal(str(error)) from error
