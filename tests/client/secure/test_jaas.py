"""`sasl.jaas.config` is read as Kafka's clients read it."""

import pytest

from smq.client.secure.jaas import (
    OAUTH_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    login_of,
    options_of,
)


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        ('username="alice" password="secret"', "alice", "secret"),
        ("username=alice password=secret", "alice", "secret"),
        ('password = "s\\"e;c=r\\\\et"\n  username = "a b"', "a b", 's"e;c=r\\et'),
        ('username="alice" password="x" tokenauth="false"', "alice", "x"),
        ('username="" password=""', "", ""),
    ],
)
def test_user_and_password_are_found(options: str, user: str, password: str) -> None:
    for module in (PLAIN_MODULE, SCRAM_MODULE):
        assert login_of(f" {module} required {options} ; ") == (module, user, password)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "alice:secret",
        f'{PLAIN_MODULE} required username="a" password="secret"',
        f'{PLAIN_MODULE} required username="a";',
        f'{PLAIN_MODULE} required username="a" password="secret;',
        f'{PLAIN_MODULE} required username="a" secret password="b";',
        'com.sun.security.auth.module.Krb5LoginModule required username="a" password="secret";',
    ],
)
def test_another_text_is_refused_without_telling_it(config: str) -> None:
    with pytest.raises(ValueError, match=r"sasl\.jaas\.config") as refused:
        login_of(config)
    assert "secret" not in str(refused.value)


def test_options_of_the_module_of_tokens_are_found() -> None:
    text = f'{OAUTH_MODULE} required clientId="a b" clientSecret="s\\"x" scope=queue;'
    options = {"clientId": "a b", "clientSecret": 's"x', "scope": "queue"}
    assert options_of(text) == (OAUTH_MODULE, options)
    assert options_of(f"{OAUTH_MODULE} required;") == (OAUTH_MODULE, {})
