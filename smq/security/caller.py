"""The program at the other end of a connection."""

from dataclasses import dataclass

from smq.security.rights import EVERYTHING, Rights

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
