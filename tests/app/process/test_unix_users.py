"""Users of this host by name: what stands for nobody else."""

import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from smq.app.process.unix_users import principal_of_user, trusted_users, with_super_users
from smq.model.config import Config
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.principals import Principal

NAMES = {0: "root", 7: "alice", 8: "0", 9: "root", 10: "bad\nname", 11: "sm\udcffq", 12: "a;b"}


@pytest.fixture(autouse=True)
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_id(uid: int) -> SimpleNamespace:
        return SimpleNamespace(pw_name=NAMES[uid], pw_uid=uid)

    def by_name(name: str) -> SimpleNamespace:
        return next(by_id(uid) for uid in sorted(NAMES) if NAMES[uid] == name)

    def or_key_error(name: str) -> SimpleNamespace:
        try:
            return by_name(name)
        except StopIteration:
            raise KeyError(name) from None

    monkeypatch.setattr(pwd, "getpwuid", by_id)
    monkeypatch.setattr(pwd, "getpwnam", or_key_error)
    monkeypatch.setattr("os.getuid", lambda: 7)


@pytest.mark.parametrize(
    ("uid", "name"),
    [
        (0, "root"),
        (7, "alice"),
        (8, "8"),
        (9, "9"),
        (10, "10"),
        (11, "11"),
        (12, "12"),
        (4711, "4711"),
    ],
)
def test_a_user_has_its_name_if_that_stands_for_it_alone(uid: int, name: str) -> None:
    assert principal_of_user(uid) == Principal("User", f"unix/{name}")


def config(users: str, *, rules: bool = True) -> Config:
    name = STANDARD_AUTHORIZER if rules else ""
    return Config(data_dir=Path("/data"), super_users=users, authorizer_class_name=name)


def test_root_and_the_broker_s_user_are_trusted_and_the_super_users_that_are_here() -> None:
    users = "User:unix/4711;User:unix/nobody-here;User:alice;User:unix/9;User:unix/;Group:unix/8"
    trusted = trusted_users(config(users))
    assert {uid: each.name for uid, each in trusted.items()} == {
        0: "unix/root", 7: "unix/alice", 4711: "unix/4711", 9: "unix/9",
    }  # fmt: skip
    assert [*trusted_users(config(users, rules=False))] == [0, 7]


def test_the_trusted_users_become_super_users_once() -> None:
    given = config("User:unix/root;User:admin")
    added = with_super_users(given, trusted_users(given))
    assert added == "User:unix/root;User:admin;User:unix/alice"
    off = config("User:admin", rules=False)
    assert with_super_users(off, trusted_users(off)) == "User:admin"
    none = config("")
    assert with_super_users(none, trusted_users(none)) == "User:unix/root;User:unix/alice"
