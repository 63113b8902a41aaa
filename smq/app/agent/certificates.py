"""Keys and certificates of TLS for gRPC, from the same files as those of Kafka's listeners.

gRPC asks for them at each handshake, so that replaced files hold from the next connection on. It
has its own TLS, of which it lets little be chosen (docs/seaweedmq.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import grpc

from smq.app.process.key_stores import (
    NOBODY,
    STAYS,
    TlsSettings,
    context_of,
    end_of_chain,
    pem_of,
)
from smq.app.process.watched_files import Sentences, WatchedFiles


class _Keys(NamedTuple):
    """As gRPC takes them, and when their first certificate ends."""

    configuration: Any
    end_ms: int


_NONE = _Keys(None, 0)  # Keys that cannot be used, after a broker has served.


class GrpcKeys:
    """Those of one port; `look` reads changed files again."""

    def __init__(
        self, settings: TlsSettings, say: Callable[[str], None], *, has_served: bool = False
    ) -> None:
        """Raises UnusableKeys, unless the broker `has_served`: then the port opens once they can be
        used."""
        self._requires_certificates = settings.client_auth == "required"
        self._watched = WatchedFiles[_Keys](
            settings.files,
            partial(_keys, settings),
            Sentences(f"ssl ({settings.listener}): the keys have been read again", STAYS, NOBODY),
            say,
            _NONE if has_served else None,
        )
        self._given = self._watched.value

    def look(self) -> None:
        """Use files that have changed. Called about once a second."""
        self._watched.look()

    @property
    def are_usable(self) -> bool:
        """Whether a port can open with them."""
        return self._watched.value is not _NONE

    @property
    def end_ms(self) -> int:
        """The wall time when the first of their certificates ends; 0: unknown."""
        return self._watched.value.end_ms

    def credentials(self) -> grpc.ServerCredentials:
        """What a port opens with."""
        assert self.are_usable
        self._given = self._watched.value
        return grpc.dynamic_ssl_server_credentials(
            self._given.configuration, self.newer, self._requires_certificates
        )

    def newer(self) -> Any:  # noqa: ANN401  (gRPC's configuration)
        """What has changed since it was given to gRPC; None: nothing. By gRPC's threads."""
        found = self._watched.value
        if found is self._given:
            return None
        self._given = found
        return found.configuration


def _keys(settings: TlsSettings) -> _Keys:
    context_of(settings)  # OpenSSL says what is wrong, where gRPC refuses each handshake.
    pem = pem_of(settings)
    pair = pem.key, pem.chain
    found = grpc.ssl_server_certificate_configuration([pair], pem.trusted or None)
    return _Keys(found, end_of_chain(pem.chain))
