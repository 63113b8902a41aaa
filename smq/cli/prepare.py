"""`smq prepare`: users and rules from files, before each start of a broker.

    users   a directory with a file for each user, whose name is his and which has his password; or
            what the paths of such files begin with, up to a _, as systemd names credentials that it
            loads from a directory: …/users_
    rules   a file of JSON as `smq acl list --json` writes it; of what is left out, host is any,
            permission ALLOW, and pattern_type LITERAL

Who has that password already keeps his keys, and a rule that is there stays. What the files do not
name, or no longer, stays too.
"""

import json
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.client import AsJson, refusal
from smq.cli.output import say
from smq.cli.unserved import unserved
from smq.cli.user import ITERATIONS_MIN, NAME_BYTES_MAX, check_name, password_of_file, salted_anew
from smq.model.named_files import read_named
from smq.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.addresses import is_address, written
from smq.security.credentials import ScramCredential, ScramMechanism, credential_of, salted
from smq.security.principals import Principal

if TYPE_CHECKING:
    from smq.cli.unserved import Unserved

JSON = 'JSON: {"users": {USER: "set" or "as before"}, "rules": {"added", "there"}}'
_SET, _SAME = "set", "as before"
_DEFAULTS = {"host": WILDCARD, "permission": "ALLOW", "pattern_type": "LITERAL"}
_FIELDS = {*ResourcePattern._fields, *AccessControlEntry._fields}
_WORDS: dict[str, list[IntEnum]] = {
    "resource_type": [each for each in ResourceType if each > ResourceType.ANY],
    "pattern_type": [PatternType.LITERAL, PatternType.PREFIXED],
    "operation": [each for each in Operation if each > Operation.ANY],
    "permission": [Permission.DENY, Permission.ALLOW],
}


def prepare(
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", help="A data directory that no broker serves, or a new one."),
    ],
    users: Annotated[
        str | None,
        typer.Option(
            "--users",
            help="A directory: each file has the password of the user whose name it has. Or what "
            "the paths of such files begin with, which ends with _.",
            metavar="DIRECTORY",
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules", help="A file of JSON, as `smq acl list --json` writes it.", metavar="FILE"
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Give a data directory users and rules from files, before its broker starts; may be repeated.

    What is there already stays: passwords that are the same, rules, and all that the files do not
    name.
    """
    if users is None and rules is None:
        raise refusal("name --users, --rules or both")
    passwords = {} if users is None else _passwords(users)
    wanted = [] if rules is None else _rules(rules)
    with unserved(data_dir, "smq prepare") as opened:
        found = {user: _give(opened, user, each) for user, each in passwords.items()}
        added = sum(map(opened.add_rule, wanted))
    counts = {"added": added, "there": len(wanted) - added}
    if as_json:
        say(json.dumps({"users": found, "rules": counts}))
        return
    for user, what in found.items():
        say(f"{user}: the password is {what}")
    say(f"rules: {added} added, {counts['there']} were there")


def _passwords(place: str) -> dict[str, str]:
    """The password of each user."""
    directory, begin = Path(place), ""
    try:
        if place.endswith("_") and not directory.is_dir():
            directory, begin = directory.parent, directory.name
        # Kubernetes keeps what the names lead to in hidden directories.
        names = sorted(each.name for each in directory.iterdir() if not each.name.startswith("."))
    except OSError as reason:
        raise refusal(f"--users: {directory} cannot be read: {reason}") from reason
    found = {}
    for name in names:
        if name.startswith(begin):
            user = name.removeprefix(begin)
            check_name(user)
            found[user] = password_of_file(directory / name, "--users")
    if not found:
        raise refusal(f"--users: {place} names no file")
    return found


def _give(opened: "Unserved", user: str, password: str) -> str:
    """Give a user a password by each mechanism, unless he has it already."""
    known = opened.credentials_of(user)
    lacking = [each for each in ScramMechanism if not _is_of(known, each, password)]
    if not lacking:
        return _SAME
    opened.give(user, [salted_anew(each, password, ITERATIONS_MIN) for each in lacking])
    return _SET


def _is_of(
    known: Mapping[ScramMechanism, ScramCredential], mechanism: ScramMechanism, password: str
) -> bool:
    """Whether a credential is of this password."""
    found = known.get(mechanism)
    if found is None:
        return False
    key = salted(mechanism, password, found.salt, found.iterations)
    return credential_of(mechanism, key, found.salt, found.iterations) == found


def _rules(file: Path) -> list[AclBinding]:
    try:
        data = read_named(file, passed_on_as="--rules")
    except OSError as reason:
        raise refusal(f"--rules: {file} cannot be read: {reason}") from reason
    try:
        rows = json.loads(data)
        if not isinstance(rows, list):
            raise ValueError("it is no list")  # noqa: TRY004, TRY301  (as what JSON refuses)
        return [_rule(each) for each in rows]
    except (ValueError, RecursionError) as reason:
        raise refusal(f"--rules: {file}: {reason}") from reason


def _rule(row: object) -> AclBinding:
    """The rule that a row of JSON says. Raises ValueError."""
    if not isinstance(row, dict) or not all(isinstance(each, str) for each in row.values()):
        raise ValueError(f"{row!r} is no rule: an object of texts")
    given = _DEFAULTS | row
    if given.keys() != _FIELDS:
        raise ValueError(f"{row!r} has not the fields of a rule: {', '.join(sorted(_FIELDS))}")
    if any(len(each.encode()) > NAME_BYTES_MAX for each in given.values()):
        raise ValueError(f"a rule has a text of over {NAME_BYTES_MAX} bytes")
    words = {name: _word(name, given[name]) for name in _WORDS}
    kind, name = words["resource_type"], given["name"]
    if not name or (kind is ResourceType.CLUSTER and name != CLUSTER_NAME):
        raise ValueError(f"{row!r}: a name is not empty, and the cluster's is {CLUSTER_NAME}")
    if given["host"] != WILDCARD and not is_address(given["host"]):
        raise ValueError(f"{given['host']!r} is no address of IPv4 or IPv6")
    return AclBinding(
        ResourcePattern(kind, name, words["pattern_type"]),
        AccessControlEntry(
            str(Principal.parse(given["principal"])),
            written(given["host"]),
            words["operation"],
            words["permission"],
        ),
    )


def _word(field: str, text: str) -> Any:  # noqa: ANN401  (of the field's own kind)
    for each in _WORDS[field]:
        if each.name == text.upper():
            return each
    raise ValueError(f"{field} is one of {', '.join(e.name for e in _WORDS[field])}, not {text!r}")
