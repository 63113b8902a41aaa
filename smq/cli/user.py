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

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    BrokersDirectory,
    checked_text,
    cluster_at,
    refusal,
)
from smq.cli.output import say
from smq.model.named_files import read_named
from smq.model.setting import PASSWORD_VARIABLE
from smq.security.credentials import SaltedPassword, ScramMechanism, salted
from smq.security.salts import SALT_BITS, base36
from smq.security.sasl import RESERVED_PREFIX

app = typer.Typer(help="Add, list and remove users with passwords.", no_args_is_help=True)
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384  # Kafka's.
NAME_BYTES_MAX = 32_000  # Strings of Kafka's protocol hold 32,767 bytes, "User:" included.
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
    check_name(user)
    password = _password(password_file)
    passwords = [salted_anew(each, password, iterations) for each in _chosen(mechanism)]
    if data_dir is not None and not _is_served(data_dir):
        from smq.cli.unserved import unserved  # noqa: PLC0415  (as below)

        with unserved(data_dir, "smq user add") as opened:
            opened.give(user, passwords)
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


def check_name(user: str) -> None:
    """Exits if no user can have this name."""
    if not user or user.startswith(RESERVED_PREFIX):
        raise refusal("a name is not empty, and names that begin with unix/ are the host's users")
    checked_text(user, NAME_BYTES_MAX)


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
        if not found:
            raise refusal("a password is not empty")
        try:
            found.encode()
        except UnicodeEncodeError as reason:
            raise refusal(f"{PASSWORD_VARIABLE} is no text in UTF-8") from reason
        return str(found)
    return password_of_file(file, "--password-file")


def password_of_file(file: Path, option: str) -> str:
    """The password that an option's file has."""
    try:
        data = read_named(file, passed_on_as=option)
        found = data.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as reason:
        raise refusal(f"{option}: {file} cannot be read: {reason}") from reason
    if not found:
        raise refusal(f"a password is not empty: {file}")
    return found


def salted_anew(mechanism: ScramMechanism, password: str, iterations: int) -> SaltedPassword:
    """A password's keys with a new salt."""
    salt = base36(secrets.randbits(SALT_BITS)).encode()  # Else decoys would give themselves away.
    return SaltedPassword(
        mechanism, iterations, salt, salted(mechanism, password, salt, iterations)
    )


def _is_served(data_dir: Path) -> bool:
    from smq.app.process.status import read_status  # noqa: PLC0415  (NumPy takes its time.)

    return read_status(data_dir) is not None
