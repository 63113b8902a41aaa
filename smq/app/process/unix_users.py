"""Users of this host as principals: `User:unix/<name>`, by the user ids that sockets tell.

A directory service may take seconds to answer, so nothing here is called in a loop: those who may
do everything are looked up before the first fork, others in a thread.
"""

import os
import pwd
from collections.abc import Iterator, Mapping

from shm.peer import ROOT
from smq.model.config import Config
from smq.security.principals import USER, Principal, parse_super_users
from smq.security.sasl import RESERVED_PREFIX


def principal_of_user(uid: int) -> Principal:
    """Who a user is: by the name, or by the id where no name stands for it alone."""
    return Principal(USER, f"{RESERVED_PREFIX}{_name_of(uid)}")


def _name_of(uid: int) -> str:
    try:
        name = pwd.getpwuid(uid).pw_name
        is_alone = pwd.getpwnam(name).pw_uid == uid
    except (KeyError, OSError):
        return str(uid)
    # A name of digits would be taken for another's id, and a semicolon ends one in `super.users`.
    is_clear = name.isprintable() and not name.isdecimal() and ";" not in name
    return name if is_alone and is_clear else str(uid)


def trusted_users(config: Config) -> dict[int, Principal]:
    """Root, this process's user, and the users among the super users, if there is an authorizer."""
    found = {uid: principal_of_user(uid) for uid in (ROOT, os.getuid())}
    if config.authorizer_class_name:
        for each in parse_super_users(config.super_users):
            for uid in _ids_of(each):
                found[uid] = each
    return found


def _ids_of(principal: Principal) -> Iterator[int]:
    name = principal.name.removeprefix(RESERVED_PREFIX)
    if principal.kind != USER or name == principal.name:
        return
    try:
        uid = int(name) if name.isdecimal() and name.isascii() else pwd.getpwnam(name).pw_uid
    except (KeyError, OSError, ValueError):
        return
    if principal_of_user(uid) == principal:
        yield uid


def with_super_users(config: Config, users: Mapping[int, Principal]) -> str:
    """The value of `super.users` with these added; without an authorizer nobody is one."""
    if not config.authorizer_class_name:
        return config.super_users
    known = parse_super_users(config.super_users)
    added = (str(each) for each in users.values() if each not in known)
    return ";".join(filter(None, [config.super_users, *dict.fromkeys(added)]))
