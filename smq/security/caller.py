"""The program at the other end of a connection."""

from dataclasses import dataclass

from smq.security.der import UnreadableDer
from smq.security.distinguished_names import MappingRules, subject_of, written
from smq.security.principals import ANONYMOUS, USER, Principal
from smq.security.rights import EVERYTHING, Rights
from smq.security.sasl import RESERVED_PREFIX

SOFTWARE_MAX = 255  # Characters kept of a name or a version.


@dataclass(slots=True)
class Caller:
    """Its address, and the software that it has named in ApiVersions ("": it has not).

    rights   of its principal; another's once it has logged in
    """

    host: str = ""
    port: int = 0
    software_name: str = ""
    software_version: str = ""
    rights: Rights = EVERYTHING

    def name_software(self, name: str, version: str) -> None:
        """Set the software that it names."""
        self.software_name, self.software_version = name[:SOFTWARE_MAX], version[:SOFTWARE_MAX]


def certified(certificate: bytes | None, naming: MappingRules) -> Principal | None:
    """Who has shown a certificate, in DER; None: nobody who may come in."""
    if certificate is None:
        return ANONYMOUS
    try:
        name = naming.name_of(written(subject_of(certificate)))
    except UnreadableDer:
        return None
    if name is None or name.startswith(RESERVED_PREFIX):
        return None
    return Principal(USER, name)
