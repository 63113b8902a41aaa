"""The program at the other end of a connection."""

from dataclasses import dataclass

SOFTWARE_MAX = 255  # Characters of a name or a version that are kept.


@dataclass(slots=True)
class Caller:
    """Its address, and the software that it has named in ApiVersions ("": it has not)."""

    host: str = ""
    port: int = 0
    software_name: str = ""
    software_version: str = ""

    def name_software(self, name: str, version: str) -> None:
        """It says what it is."""
        self.software_name, self.software_version = name[:SOFTWARE_MAX], version[:SOFTWARE_MAX]
