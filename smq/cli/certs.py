"""`smq certs`: an authority, a broker's certificate and clients', for a test or a first try.

ca.pem       the authority's certificate: ssl.truststore.location of clients and of the broker
ca-key.pem   its key: a later run makes further certificates with it
broker.pem   the broker's key and certificate: ssl.keystore.location
<name>.pem   a client's

A broker that runs reads its file again, so broker.pem is replaced only where `--host` asks for it.
Each file is replaced as a whole: a run that is killed leaves the former one or the new one. Of root
the new one belongs to whom the former did, as a broker of another user goes on reading it. The
authority's two are never replaced: who has lost one of them has to say what is to be done. One run
at a time looks at a directory and writes there: two would make an authority each.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shm.peer import ROOT
from shm.private import LOCK, open_lock
from smq.cli.output import say
from smq.model.named_files import read_named

if TYPE_CHECKING:
    from smq.cli.key_pairs import KeyPair

AUTHORITY, AUTHORITY_KEY, BROKER = "ca.pem", "ca-key.pem", "broker.pem"
RESERVED = frozenset({AUTHORITY, AUTHORITY_KEY, BROKER})
READABLE = 0o640  # What a key's file may allow: others never read it.
DAY_MS = 24 * 60 * 60_000
DAYS_DEFAULT, DAYS_MAX = 30, 3650  # What is to last is better made by those who keep keys.
HOSTS_DEFAULT = ["localhost", "127.0.0.1", "::1"]


def certs(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where they are put.")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="A name or address of the broker, whose certificate is made anew."
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client", help="Make a client's certificate, CN=NAME: NAME.pem.", metavar="NAME"
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", help="How long they are valid.", min=1, max=DAYS_MAX)
    ] = DAYS_DEFAULT,
) -> None:
    """Make an authority and certificates for a test.

    An authority that is there is used again, and none ends later. A broker's certificate stays
    unless --host is given.
    """
    from smq.cli.client import refusal  # noqa: PLC0415  (seldom needed)

    clients = {_file_of(name): name for name in client or ()}
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        if status.st_uid not in {ROOT, os.geteuid()} or status.st_mode & stat.S_IWOTH:
            raise refusal(f"others may write to {directory}, and read keys that are put there")
        with _alone(directory):
            makes_broker = host is not None or not (directory / BROKER).exists()
            hosts = (host or HOSTS_DEFAULT) if makes_broker else []
            made = _made(directory, hosts, clients, days)
            for file, data in made.items():
                _write(directory / file, data)
    except OSError as reason:
        raise refusal(f"{directory} cannot be written: {reason}") from reason
    for file in made:
        say(f"{directory.absolute() / file} is made")
    if not makes_broker:
        say(f"{directory.absolute() / BROKER} stays as it is; --host makes it anew")
    say(f"ssl.keystore.location = {directory.absolute() / BROKER}")
    say(f"ssl.truststore.location = {directory.absolute() / AUTHORITY}")


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """No other run works on the directory meanwhile. Exits if one does."""
    import fcntl  # noqa: PLC0415  (this file is imported where there is none)

    from smq.cli.client import refusal  # noqa: PLC0415  (seldom needed)

    lock, fd = directory / LOCK, open_lock(directory)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(fd), lock.lstat()):
                raise BlockingIOError  # noqa: TRY301  (The other run has just ended.)
        except (BlockingIOError, FileNotFoundError) as reason:
            raise refusal(
                f"another `smq certs` writes to {directory}; wait until it has ended"
            ) from reason
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _made(
    directory: Path, hosts: list[str], clients: dict[str, str], days: int
) -> dict[str, bytes]:
    """What is to be written, by the files' names: the broker's if it has hosts. May exit."""
    from smq.app.process.clock import wall_ms  # noqa: PLC0415  (seldom needed)
    from smq.cli.client import refusal  # noqa: PLC0415  (as above)

    try:
        from smq.cli.key_pairs import ends_at, make_pair  # noqa: PLC0415  (needs an extra)
    except ImportError as reason:
        raise refusal(
            "this needs the extra `security`: pip install smq-broker[security]"
        ) from reason
    files = {}
    about = AUTHORITY
    try:
        authority = _authority(directory)
        if authority is None:
            authority = make_pair("smq certs", days, wall_ms())
            files = {AUTHORITY_KEY: authority.key, AUTHORITY: authority.certificate}
        names = {BROKER: "smq", **clients} if hosts else clients
        for about, name in names.items():
            pair = make_pair(name, days, wall_ms(), authority, hosts if about == BROKER else ())
            files[about] = pair.key + pair.certificate + authority.certificate
    except ValueError as reason:
        raise refusal(f"{about} cannot be made: {reason}") from reason
    _refuse_others(directory, authority, [*clients] if hosts else [BROKER, *clients])
    ends = ends_at(authority.certificate)
    if names and ends.timestamp() * 1000 < wall_ms() + (days - 1) * DAY_MS:
        say(
            f"they end with their authority, on {ends.date()}; another directory begins another one"
        )
    return files


def _authority(directory: Path) -> "KeyPair | None":
    """The authority of an earlier run. Exits if half of it is elsewhere."""
    from smq.cli.client import refusal  # noqa: PLC0415  (seldom needed)
    from smq.cli.key_pairs import KeyPair  # noqa: PLC0415  (needs an extra)

    names = AUTHORITY_KEY, AUTHORITY
    halves = [each for each in map(directory.joinpath, names) if os.path.lexists(each)]
    if not halves:
        return None
    if len(halves) == 1:
        [there], [missing] = [each.name for each in halves], {*names} - {halves[0].name}
        raise refusal(
            f"{directory} has {there} and not {missing}, which belongs to it; put that there too, "
            "or name another directory for another authority (if the first run here was killed, "
            f"{there} has signed nothing: remove it)"
        )
    return KeyPair(*(read_named(each) for each in halves))


def _refuse_others(directory: Path, authority: "KeyPair", names: list[str]) -> None:
    """Exit if one of these files is there and another authority's: it would be of no use here, or
    lost."""
    from smq.cli.client import refusal  # noqa: PLC0415  (seldom needed)
    from smq.cli.key_pairs import is_signed_by  # noqa: PLC0415  (needs an extra)

    for name in names:
        try:
            is_its_own = is_signed_by(read_named(directory / name), authority.certificate)
        except FileNotFoundError:
            continue
        except ValueError:
            is_its_own = False
        if not is_its_own:
            way = ", or --host makes it anew" if name == BROKER else ""
            raise refusal(
                f"{directory / name} has no certificate of the authority {AUTHORITY}; move it "
                f"away{way}"
            )


def _file_of(name: str) -> str:
    """The file of a client, which is called like it. Exits if there is no such file."""
    from smq.cli.client import refusal  # noqa: PLC0415  (seldom needed)

    file = f"{name}.pem"
    if file.casefold() in RESERVED:  # Some systems do not tell upper case from lower.
        raise refusal(f"--client: {file} is the authority's or the broker's; name it otherwise")
    if not name.isprintable() or name.startswith(".") or set(name) & set("/\\") or not name:
        raise refusal(
            f"--client: {name!r} would be a file's name, which is not empty, does not begin with a "
            "dot, and has neither slashes nor control characters"
        )
    return file


def _write(path: Path, data: bytes) -> None:
    """Replace a file, for this user alone, or who could read the former. Raises OSError."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # Of a run that was killed.
    former = _owned(path)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        if former:
            os.fchown(file.fileno(), former.st_uid, former.st_gid)
            os.fchmod(file.fileno(), former.st_mode & READABLE)
        file.write(data)
    new.rename(path)


def _owned(path: Path) -> os.stat_result | None:
    """Whose the file is that root replaces; None: it gets no other owner.

    Where a group may write, its members could have put the file there, to be given the key.
    """
    if os.geteuid() != ROOT or path.parent.stat().st_mode & stat.S_IWGRP:
        return None
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None
