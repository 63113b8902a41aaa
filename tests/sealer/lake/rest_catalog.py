"""An Iceberg REST catalog on this machine: the protocol's requests, from pyiceberg's own models,
over its SQL catalog."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

STATUS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalogServer:
    """The server; `forget_answers`: commits are made, and their answers are lost."""

    def __init__(self, directory: Path) -> None:
        self.catalog = SqlCatalog(
            "rest",
            uri=f"sqlite:///{directory}/rest.sqlite",
            warehouse=f"file://{directory}/warehouse",
        )
        self.forget_answers = False
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.catalog.close()

    def answer(  # noqa: PLR0911  (one for each request)
        self, method: str, path: list[str], body: bytes
    ) -> dict[str, Any] | None:
        """The answer to a request below /v1/."""
        self.asked.append(f"{method} /{'/'.join(path)}")
        match method, path:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                asked = json.loads(body)
                self.catalog.create_namespace(tuple(asked["namespace"]))
                return {"namespace": asked["namespace"], "properties": {}}
            case (("GET" | "HEAD"), ["namespaces", namespace]):
                self.catalog.load_namespace_properties(namespace)
                return {"namespace": [namespace], "properties": {}}
            case "POST", ["namespaces", namespace, "tables"]:
                return self._create(namespace, CreateTableRequest.model_validate_json(body))
            case (("GET" | "HEAD"), ["namespaces", namespace, "tables", table]):
                return _table(self.catalog.load_table((namespace, table)))
            case "POST", ["namespaces", namespace, "tables", table]:
                return self._commit((namespace, table), body)
            case "DELETE", ["namespaces", namespace, "tables", table]:
                self.catalog.drop_table((namespace, table))
                return None
        raise NoSuchTableError(f"{method} {path}")

    def _create(self, namespace: str, asked: CreateTableRequest) -> dict[str, Any]:
        table = self.catalog.create_table(
            (namespace, asked.name),
            asked.table_schema,
            location=asked.location,
            partition_spec=asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            properties=asked.properties,
        )
        return _table(table)

    def _commit(self, name: tuple[str, str], body: bytes) -> dict[str, Any]:
        asked = CommitTableRequest.model_validate_json(body)
        table = self.catalog.load_table(name)
        answer = self.catalog.commit_table(table, asked.requirements, asked.updates)
        if self.forget_answers:
            raise ConnectionError
        written: dict[str, Any] = json.loads(answer.model_dump_json(by_alias=True))
        return written


def _table(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _handler_of(server: RestCatalogServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            path = [unquote(each) for each in urlsplit(self.path).path.split("/")[2:]]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                answer, status = server.answer(self.command, path, body), 200
            except ConnectionError:
                self.close_connection = True
                return
            except tuple(STATUS) as error:
                status = STATUS[type(error)]
                answer = {"error": {"message": str(error), "type": type(error).__name__}}
                answer["error"]["code"] = status
            data = b"" if answer is None or self.command == "HEAD" else json.dumps(answer).encode()
            self.send_response(status if data or self.command == "HEAD" else 204)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815  (the base's names)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler


@contextmanager
def rest_catalog(directory: Path) -> Iterator[RestCatalogServer]:
    """A server with an empty catalog."""
    server = RestCatalogServer(directory)
    try:
        yield server
    finally:
        server.close()
