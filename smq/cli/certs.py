"""`smq certs`: an authority, a broker's certificate and clients', for a test or a first try.

ca.pem       the authority's certificate: ssl.truststore.location of clients and of the broker
ca-key.pem   its key: a later run makes further certificates with it
broker.pem   the broker's key and certificate: ssl.keystore.location
<name>.pem   a client's
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shm.peer import ROOT
from smq.cli.output import say

if TYPE_CHECKING:
    from smq.cli.key_pairs import KeyPair

AUTHORITY, AUTHORITY_KEY, BROKER = "ca.pem", "ca-key.pem", "broker.pem"
DAYS_DEFAULT, DAYS_MAX = 30, 3650  # What is to last is better made by those who keep keys.
HOSTS_DEFAULT = ["localhost", "127.0.0.1", "::1"]


def certs(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where they are put.")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address of the broker; may be repeated."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="Make a client's certificate, CN=NAME.", metavar="NAME"),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", help="How long they are valid.", min=1, max=DAYS_MAX)
    ] = DAYS_DEFAULT,
) -> None:
    """Make an authority and certificates for a test. An authority that is there is used again."""
    from smq.app.process.clock import wall_ms  # noqa: PLC0415  (seldom needed)
    from smq.cli.client import refusal  # noqa: PLC0415

    try:
        from smq.cli.key_pairs import make_pair  # noqa: PLC0415
    except ImportError as reason:
        raise refusal(
            "this needs the extra `security`: pip install smq-broker[security]"
        ) from reason
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if status.st_uid not in {ROOT, os.geteuid()} or status.st_mode & stat.S_IWOTH:
            raise refusal(f"others may write to {directory}, and read keys that are put there")
        authority = _authority(directory)
        if authority is None:
            authority = make_pair("smq certs", days, wall_ms())
            _write(directory / AUTHORITY, authority.certificate)
            _write(directory / AUTHORITY_KEY, authority.key)
        names = {BROKER: ("smq", host or HOSTS_DEFAULT)}
        names |= {f"{_file_name(name)}.pem": (name, []) for name in client or ()}
        for file, (name, hosts) in names.items():
            pair = make_pair(name, days, wall_ms(), authority, hosts)
            _write(directory / file, pair.key + pair.certificate + authority.certificate)
    except OSError as reason:
        raise refusal(f"{directory} cannot be written: {reason}") from reason
    say(f"ssl.keystore.location = {directory.absolute() / BROKER}")
    say(f"ssl.truststore.location = {directory.absolute() / AUTHORITY}")


def _authority(directory: Path) -> "KeyPair | None":
    """The authority of an earlier run."""
    from smq.cli.key_pairs import KeyPair  # noqa: PLC0415  (needs an extra)

    try:
        certificate = (directory / AUTHORITY).read_bytes()
        return KeyPair((directory / AUTHORITY_KEY).read_bytes(), certificate)
    except FileNotFoundError:
        return None


def _file_name(name: str) -> str:
    """A client's name as a file: other characters than of names become underscores."""
    return "".join(each if each.isalnum() or each in "-_." else "_" for each in name).lstrip(".")


def _write(path: Path, data: bytes) -> None:
    """Replace a file, which only this user may read. Raises OSError."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # Of a run that was killed.
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    new.rename(path)
