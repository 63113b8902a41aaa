"""`sasl.jaas.config` is read as Kafka's clients read it."""

from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

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


# What Apache Kafka 4.3.1 reads (JaasContext.loadClientContext); None: it refuses the text.
BY_KAFKA: list[tuple[str, dict[str, str] | None]] = [
    ("username='carl' password='it is';", {"password": "it is", "username": "carl"}),
    ('/* c */ username="carl" password="it is";', {"password": "it is", "username": "carl"}),
    ('username="carl" // c\n password="it is";', {"password": "it is", "username": "carl"}),
    ('username = "carl" password = "x";', {"password": "x", "username": "carl"}),
    ('username="carl" password="a\\"b\\nc\\101\\x";', {"password": 'a"b\ncAx', "username": "carl"}),
    ("username='ca\"rl' password=\"it's\";", {"password": "it's", "username": 'ca"rl'}),
    ("username=carl password=a/b;", None),
    ("username=carl password=a/b\n;", {"password": "a", "username": "carl"}),
    ("username=carl password=a#b;", None),
    ("username=carl password=a-b_c$d;", {"password": "a-b_c$d", "username": "carl"}),
    ("username=carl password=a@b;", None),
    ("username=carl password=12.50;", None),
    ("username=carl password=1a;", None),
    ("username=carl password=a1.5;", {"password": "a1.5", "username": "carl"}),
    ("username=carl password=-5;", None),
    ("username=carl password=p\xfc;", {"password": "p\xfc", "username": "carl"}),
    ('username="carl"password="x";', {"password": "x", "username": "carl"}),
    ('\'username\'="carl" "password"="x";', {"password": "x", "username": "carl"}),
    ('username="carl" password="x"', None),
    ('username="carl" password="x"; ', {"password": "x", "username": "carl"}),
    ('username="carl" password="x" ; // end', {"password": "x", "username": "carl"}),
    ('username="carl" password="x"; /* end */', {"password": "x", "username": "carl"}),
    ('username="carl" password="x"; b required;', None),
    ('username="carl" password="x";;', None),
    ('username="carl" password="x\ny";', None),
    ('username="carl" password="x\\\ny";', {"password": "x\ny", "username": "carl"}),
    ('username="carl" password="x\n;', {"password": "x", "username": "carl"}),
    ('username="carl" password="";', {"password": "", "username": "carl"}),
    ('username="carl" password=;', None),
    ('username="carl" password="a" password="b";', {"password": "b", "username": "carl"}),
    ('username="carl" password="/* a */ // b";', {"password": "/* a */ // b", "username": "carl"}),
    ("username=carl password=a//b;", None),
    ("username=carl password=a/*b*/;", {"password": "a", "username": "carl"}),
    ("username=carl password=a=b;", None),
    ('username=carl password=a"b";', None),
    ("user.name-x=1 password=b;", None),
    ("user.name-x=a;", {"user.name-x": "a"}),
    ('1="a" b=c;', {"b": "c"}),
    ('="a";', None),
    (";", {}),
    ("", None),
    ('username="a\\tb\\u0041\\477\\7\\18";', {"username": "a\tbu0041'7\x07\x018"}),
    ("username=carl password=a,b;", None),
    ("username=carl password=a:b;", None),
    ("username=carl password=a!;", None),
    ("username=carl /* unclosed password=a;", None),
    ("username=carl /*/ password=a; */;", {"username": "carl"}),
    ("a=b;\x00\x1f", {"a": "b"}),
    ("a=\x7f;", None),
    ("a=b\x80;", None),
    ("a=\xa0;", {"a": "\xa0"}),
    ("a=\u6f22;", {"a": "\u6f22"}),
]


@pytest.mark.parametrize(("options", "read"), BY_KAFKA)
def test_options_are_read_as_kafka_reads_them(options: str, read: dict[str, str] | None) -> None:
    if read is None:
        with pytest.raises(ValueError, match=r"sasl\.jaas\.config"):
            options_of(f"{PLAIN_MODULE} required {options}")
    else:
        assert options_of(f"{PLAIN_MODULE} required {options}") == (PLAIN_MODULE, read)


@given(st.text(), st.text())
@example("a\\", "\n")
def test_quoted_text_is_read_as_it_was(user: str, password: str) -> None:
    def quoted(text: str) -> str:
        escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
        return "".join(escaped.get(each, each) for each in text)

    options = f'username="{quoted(user)}" password="{quoted(password)}"'
    assert login_of(f"{SCRAM_MODULE} required {options};") == (SCRAM_MODULE, user, password)


@given(st.text(st.sampled_from("ab1-.=;\"'/*\\\n #")))
def test_garbage_raises_nothing_but_a_value_error(text: str) -> None:
    with suppress(ValueError):
        module, _ = options_of(f"{PLAIN_MODULE} required {text}")
        assert module == PLAIN_MODULE


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
