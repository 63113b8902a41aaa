"""`smq user add|list|remove`: users with passwords, which log in by SCRAM or PLAIN.

A broker is asked over the wire; with --data-dir by its unix socket. A directory that no broker
serves gets its first users so, before the first start: from its owner only.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from shm.peer import ROOT
from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    BrokersDirectory,
    cluster_at,
    refusal,
)
from smq.cli.output import say
from smq.model.config import Config
from smq.model.errors import StoreError
from smq.model.printable import say_error
from smq.model.setting import PASSWORD_VARIABLE
from smq.security.credentials import SaltedPassword, ScramMechanism, credential_of, salted
from smq.security.decoys import SALT_BITS, base36
from smq.security.published import UserCredential
from smq.security.sasl import RESERVED_PREFIX

app = typer.Typer(help="Add, list and remove users with passwords.", no_args_is_help=True)
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384  # Kafka's.
_BY_NAME = {each.sasl_name: each for each in ScramMechanism}

UserName = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        help=f"{' or '.join(_BY_NAME)}; may be repeated. Default: both.",
        metavar="MECHANISM",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="A data directory, served or not, instead of --bootstrap."),
]


@app.command(epilog='JSON: {"user", "mechanisms": [NAME]}')
def add(  # noqa: PLR0913, PLR0917  (one option each)
    user: UserName,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help=f"A file with the password; else `${PASSWORD_VARIABLE}`, else you are asked.",
        ),
    ] = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="How often it is hashed."
        ),
    ] = ITERATIONS_MIN,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: DataDir = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a user, or give one another password, which ends connections that used the former."""
    _check_name(user)
    password = _password(password_file)
    passwords = [_salted(each, password, iterations) for each in _chosen(mechanism)]
    if data_dir is not None and not _is_served(data_dir):
        _put(data_dir, user, passwords)
    else:
        from smq.client.kafka.users import give  # noqa: PLC0415  (NumPy takes its time.)

        with cluster_at(bootstrap, data_dir) as cluster:
            give(cluster, user, passwords)
    names = [each.mechanism.sasl_name for each in passwords]
    said = json.dumps({"user": user, "mechanisms": names})
    say(said if as_json else f"{user} can log in with {' and '.join(names)}")


@app.command("list", epilog="JSON: {USER: {MECHANISM: ITERATIONS}}")
def list_users(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: BrokersDirectory = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the users with their mechanisms."""
    from smq.client.kafka.users import users  # noqa: PLC0415  (as above)

    with cluster_at(bootstrap, data_dir) as cluster:
        found = {
            user: {ScramMechanism(each).sasl_name: count for each, count in sorted(of_user.items())}
            for user, of_user in sorted(users(cluster).items())
        }
    if as_json:
        say(json.dumps(found))
        return
    for user, mechanisms in found.items():
        say(f"{user:<40} {', '.join(mechanisms)}")


@app.command(epilog='JSON: {"user"}')
def remove(
    user: UserName,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: BrokersDirectory = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Remove a user, and end its connections. Access rules about it stay (`smq acl remove`)."""
    from smq.client.kafka.users import take, users  # noqa: PLC0415  (as above)

    with cluster_at(bootstrap, data_dir) as cluster:
        known = users(cluster).get(user)
        if known is None:
            raise refusal(f"there is no user {user}; `smq user list` shows the users")
        take(cluster, user, known)
    say(json.dumps({"user": user}) if as_json else f"{user} is removed")


def _check_name(user: str) -> None:
    if not user or user.startswith(RESERVED_PREFIX):
        raise refusal("a name is not empty, and names that begin with unix/ are the host's users")


def _chosen(names: list[str] | None) -> list[ScramMechanism]:
    for name in names or ():
        if name not in _BY_NAME:
            raise refusal(f"there is no mechanism {name!r}; there are {', '.join(_BY_NAME)}")
    return [_BY_NAME[name] for name in names or _BY_NAME]


def _password(file: Path | None) -> str:
    """The password, which never comes from the command line: others see that."""
    if file is None:
        found = os.environ.get(PASSWORD_VARIABLE) or typer.prompt(
            "Password", hide_input=True, confirmation_prompt=True
        )
    else:
        try:
            found = file.read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as reason:
            raise refusal(f"--password-file: {file} cannot be read: {reason}") from reason
    if not found:
        raise refusal("a password is not empty")
    return str(found)


def _salted(mechanism: ScramMechanism, password: str, iterations: int) -> SaltedPassword:
    salt = base36(secrets.randbits(SALT_BITS)).encode()  # Else decoys would give themselves away.
    return SaltedPassword(
        mechanism, iterations, salt, salted(mechanism, password, salt, iterations)
    )


def _is_served(data_dir: Path) -> bool:
    from smq.app.process.status import read_status  # noqa: PLC0415  (NumPy takes its time.)

    return read_status(data_dir) is not None


def _put(data_dir: Path, user: str, passwords: list[SaltedPassword]) -> None:
    """Put a user into the store of a data directory that nobody serves."""
    from smq.app.process.refusal import refuse_wire_only  # noqa: PLC0415  (seldom needed)
    from smq.app.supervisor.datadir import DataDirectory  # noqa: PLC0415  (NumPy takes its time.)
    from smq.store.store import FILE_NAME, Store  # noqa: PLC0415  (as above)

    refuse_wire_only()
    # Root owns a volume, which others may write to: smq.app.supervisor.modes.
    if data_dir.exists() and data_dir.stat().st_uid not in {os.geteuid(), ROOT}:
        raise refusal(f"{data_dir} is another user's; run this as its owner, as the broker runs")
    os.umask(0o077)
    directory = DataDirectory(data_dir.absolute())
    try:
        _tell(data_dir, user)
        store = Store.open(data_dir / FILE_NAME)
        for mechanism, iterations, salt, salted_password in passwords:
            keys = credential_of(mechanism, salted_password, salt, iterations)
            store.access.put_credential(UserCredential(user, mechanism, keys))
        store.commit()
        store.close()
    except StoreError as reason:
        raise refusal(str(reason)) from reason
    finally:
        directory.close()


def _tell(data_dir: Path, user: str) -> None:
    """Tell the audit log first, as a broker does, with or without one: its settings are not known
    here."""
    from smq.app.process.audit_files import DIRECTORY, AuditFiles, FileLimits  # noqa: PLC0415  (as above)
    from smq.app.process.clock import now  # noqa: PLC0415  (as above)
    from smq.app.process.unix_users import principal_of_user  # noqa: PLC0415  (as above)
    from smq.security.audit import Event, line_of  # noqa: PLC0415  (NumPy takes its time.)

    config = Config()
    limits = FileLimits(config.audit_log_bytes, config.audit_log_files)
    event = Event(
        "act", str(principal_of_user(os.getuid())), api="smq user add", operation="ALTER",
        resource_type="USER", resource=user,
    )  # fmt: skip
    files = AuditFiles(data_dir.absolute() / DIRECTORY, limits, say_error)
    files.tell_acts([line_of(event, now().wall_ms)])
    files.close()
