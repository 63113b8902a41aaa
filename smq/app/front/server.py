"""Runs uvicorn on the supervisor's listener: the filer, health, metrics and the console."""

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.types import ASGIApp
from uvicorn import Config as UvicornConfig, Server

from smq.app.front import otlp
from smq.app.front.desk.decode import decoded
from smq.app.front.desk.desk import desk_of
from smq.app.front.insides import insides
from smq.app.front.metrics import Metrics, keep_counting as keep_sampling, keep_watching
from smq.app.front.observer import Observer
from smq.app.front.queries import Queries
from smq.app.front.readiness import readiness
from smq.app.front.settings import FrontSettings
from smq.app.front.telemetry import telemetry
from smq.app.process.audit_teller import TELL_S, AuditTeller
from smq.app.process.inheritance import COORDINATOR, Inheritance
from smq.app.process.key_stores import TlsSettings, UnusableKeys, WatchedContext
from smq.app.process.metrics_tokens import UnusableTokenFile, WatchedMetricsTokens
from smq.app.process.status import read_status
from smq.app.process.token_keys import UnusableTokens, WatchedTokens
from smq.filer.location import Location
from smq.front.application import FrontBroker, application, keep_counting
from smq.front.connection import REST_S, HttpConnection
from smq.front.console.console import Console
from smq.front.console.guard import Guard
from smq.front.console.routes import console_routes
from smq.front.https import Handshakes, TlsConnection
from smq.front.logins import HttpLogins, Passwords
from smq.front.rights import HttpRights
from smq.front.space import Space
from smq.front.turns import Turns
from smq.model.config import Config
from smq.model.errors import StoreError
from smq.model.printable import say_error
from smq.security.access import AccessView
from smq.security.decoys import Decoys
from smq.security.listener_rules import takes_tokens_by_http
from smq.security.listeners import http_host, http_listener, listeners_of
from smq.security.plain import PlainServer

SWITCH_S = 0.0005  # The GIL's switch interval, for which the loop waits for a page's thread.
KEYS_S = 1.0  # Between two looks at the files of keys.
# Each takes some tenths of a millisecond. With few, those who come quickly from one address keep
# others waiting in the queue.
ACCEPTS_A_TURN = 24
QUEUE_MAX = 1024  # Of connections that nobody has accepted; as the supervisor has it.
STOP_WAIT_S = 3  # For requests in progress; the supervisor waits a little longer.


class OurServer(Server):
    """Stops at the supervisor's request, and reports to it once serving."""

    def __init__(self, config: UvicornConfig, inheritance: Inheritance) -> None:
        super().__init__(config)
        self._inheritance = inheritance

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals to smq.app.process.child."""
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report readiness."""
        await super().startup(sockets)
        for each in sockets or ():  # asyncio has set its queue to as few as it accepts at once.
            each.listen(QUEUE_MAX)
        stop_fd = self._inheritance.stop.fd
        asyncio.get_running_loop().add_reader(stop_fd, self._stop, stop_fd)
        self._inheritance.report_ready()

    def _stop(self, stop_fd: int) -> None:
        asyncio.get_running_loop().remove_reader(stop_fd)
        self.should_exit = True


def serve_http(inheritance: Inheritance) -> None:
    """Serve until asked to stop. Raises SystemExit if the filer cannot be used at all."""
    sys.setswitchinterval(SWITCH_S)
    asyncio.run(_serve(inheritance))


async def _serve(inheritance: Inheritance) -> None:
    config = inheritance.config
    store = Location.of(config).open()
    if store.capabilities.local_paths:
        with suppress(StoreError):  # Later uploads will get the error.
            store.sweep()  # Unfinished uploads of a front that was killed.
    space = Space(store, config.filer_quota_bytes, config.filer_reserve_bytes)
    tls, tokens = watched_tls(inheritance), watched_tokens(inheritance)
    access = AccessView(inheritance.access, config)
    logins = logins_of(inheritance, access, tokens)
    metrics = Metrics(Observer(inheritance.data_dir, lambda: logins.failed_count if logins else 0))
    settings = FrontSettings(inheritance, space, metrics)
    settings.look()
    for_metrics = watched_metrics_tokens(inheritance)
    rights = HttpRights(logins, lambda: for_metrics.tokens)
    broker = FrontBroker(
        health=partial(health, inheritance.data_dir),
        readiness=partial(readiness, inheritance.data_dir, inheritance.runtime_dir, metrics.look),
        metrics=metrics.page,
        look=metrics.look,
        insides=insides(inheritance.data_dir) | {"telemetry": telemetry(inheritance)},
        rights=rights,
    )
    queries = Queries(inheritance.data_dir, config)
    in_thread = partial(run_sync, limiter=CapacityLimiter(1))
    coordinator, tellable = inheritance.socket_path(COORDINATOR), [logins] if logins else []
    teller = AuditTeller(access.audit, coordinator, say_error, in_thread, tellable)
    teller.turn = asyncio.Lock()  # The end of a session tells, too.
    console = Console(
        metrics.recent,
        metrics.history,
        partial(desk_of, inheritance.data_dir, inheritance.front_fds),
        store,
        decoded,
        Guard(inheritance.console_token, has_rules=rights.has_rules),
        rights,
        teller.act,
    )
    routes = [*queries.routes(), *console_routes(console)]
    app = application(store, space, broker, own_names(config), routes)
    turns = Turns(rights.user_of)
    server = OurServer(_uvicorn(app, tls, turns), inheritance)
    sender = _sender(inheritance, metrics)
    works = (
        _keep_telling(teller),
        keep_counting(space),
        keep_watching(metrics),
        settings.keep_looking(),
        keep_sampling(metrics),
        _keep_watching_keys([each for each in (tls, tokens, for_metrics) if each is not None]),
    )
    tasks = [asyncio.create_task(each) for each in works]
    assert inheritance.http_listener is not None
    await server.serve([inheritance.http_listener])
    for each in tasks:
        each.cancel()
    await teller.tell()
    if sender is not None:
        sender.shutdown(1000 * STOP_WAIT_S)


def _uvicorn(app: ASGIApp, tls: WatchedContext | None, turns: Turns) -> UvicornConfig:
    http: Any = partial(HttpConnection, turns=turns)  # uvicorn wants a class, and calls it.
    return UvicornConfig(
        app,
        http=http if tls is None else _https(tls, http),
        loop="asyncio",
        backlog=ACCEPTS_A_TURN,
        ws="none",
        lifespan="off",
        timeout_keep_alive=REST_S,
        log_config=None,
        log_level="error",  # The client is told of its own errors.
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_WAIT_S,
    )


def watched_tls(inheritance: Inheritance) -> WatchedContext | None:
    """The keys of HTTP; None: it speaks no TLS. Raises SystemExit with a sentence."""
    config = inheritance.config
    listener = http_listener(config)
    if listener is None or not listener.protocol.has_tls:
        return None
    try:
        settings = TlsSettings.of(config, listener)
        return WatchedContext(settings, say_error, has_served=inheritance.has_served)
    except UnusableKeys as reason:
        raise SystemExit(f"smq: {reason}") from reason


def _https(tls: WatchedContext, http: Callable[..., HttpConnection]) -> Any:  # noqa: ANN401
    """Makes connections with the keys of the moment."""
    handshakes = Handshakes(lambda: tls.context)

    def made(**named: Any) -> TlsConnection:  # noqa: ANN401  (as uvicorn's)
        return TlsConnection(handshakes, partial(http, **named))

    return made


async def _keep_telling(teller: AuditTeller) -> None:
    while True:
        await asyncio.sleep(TELL_S)
        await teller.tell()


async def _keep_watching_keys(
    watched: Sequence[WatchedContext | WatchedTokens | WatchedMetricsTokens],
) -> None:
    """Read keys again when they change, for ever."""
    while True:
        await asyncio.sleep(KEYS_S)
        for each in watched:
            each.look()


def watched_tokens(inheritance: Inheritance) -> WatchedTokens | None:
    """The tokens by which users log in; None: there are none. Raises SystemExit with a sentence."""
    config = inheritance.config
    listener = http_listener(config)
    if listener is None or not takes_tokens_by_http(config):
        return None
    try:
        return WatchedTokens(config, listener, say_error, has_served=inheritance.has_served)
    except UnusableTokens as reason:
        raise SystemExit(f"smq: {reason}") from reason


def watched_metrics_tokens(inheritance: Inheritance) -> WatchedMetricsTokens:
    """The tokens that open /metrics. Raises SystemExit with a sentence."""
    config, has_served = inheritance.config, inheritance.has_served
    try:
        return WatchedMetricsTokens(config, say_error, has_served=has_served)
    except UnusableTokenFile as reason:
        raise SystemExit(f"smq: {reason}") from reason


def logins_of(
    inheritance: Inheritance, access: AccessView, tokens: WatchedTokens | None
) -> HttpLogins | None:
    """How users log in, by the passwords of Kafka's listeners or by tokens; None: without access
    rules."""
    config = inheritance.config
    if not config.authorizer_class_name:
        return None
    decoys = Decoys(inheritance.decoy_secret)
    return HttpLogins(
        Passwords(partial(PlainServer, access, decoys), access.refresh),
        access.rights_of,
        config.connection_failed_authentication_delay_ms / 1000,
        tokens=None if tokens is None else tokens.tokens,
        is_open=config.allow_plaintext,
        audit=access.audit,
    )


def own_names(config: Config) -> frozenset[str]:
    """The names under which this host's HTTP is asked."""
    told = (each.advertises.host for each in listeners_of(config))
    return frozenset({http_host(config), *told, socket.gethostname()})


def _sender(inheritance: Inheritance, metrics: Metrics) -> Any:  # noqa: ANN401  (an extra's)
    """The sender of metrics by OTLP; None if it is not configured."""
    config = inheritance.config
    if not config.otlp_endpoint:
        return None
    if not otlp.is_installed():
        say_error(f"front: {otlp.MISSING}")
        return None
    settings = config.otlp_endpoint, config.otlp_interval_ms, inheritance.cluster_id
    return otlp.start_sending(*settings, metrics.recent)


def health(data_dir: Path) -> Mapping[str, Any]:
    """The state of the broker's processes, from the supervisor's status file."""
    found = read_status(data_dir)
    if found is None:
        return {"ready": False, "processes": {}}
    status, _ = found
    processes = {name: asdict(process) for name, process in status.processes.items()}
    return {"ready": status.ready, "bootstrap": status.bootstrap, "processes": processes}
