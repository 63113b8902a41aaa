"""How clients come in through one listener: in TLS or not, and by which login."""

import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gateway.login import LoginRules
from smq.security.caller import certified
from smq.security.distinguished_names import MappingRules
from smq.security.principals import Principal


class Entrance(NamedTuple):
    """One listener, as a shard accepts from it.

    context   makes TLS connections, with the keys of now; None: connections are plain
    rules     of logins by SASL; None: there are none
    naming    the names of clients with certificates
    users     of a unix listener: the users of this host that are known without a look-up
    is_front  a unix listener without a name, at which front or agent says for whom it asks
    """

    listener: str = ""
    context: Callable[[], ssl.SSLContext] | None = None
    rules: LoginRules | None = None
    naming: MappingRules = MappingRules("DEFAULT")
    users: Mapping[int, Principal] | None = None
    is_front: bool = False

    @property
    def is_open(self) -> bool:
        """Whether whoever connects is in."""
        return self.context is None and self.rules is None and self.users is None

    @property
    def is_unix(self) -> bool:
        return self.is_front or self.users is not None

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Who has shown this certificate; None: nobody who may come in."""
        return certified(certificate, self.naming)


OPEN = Entrance()
