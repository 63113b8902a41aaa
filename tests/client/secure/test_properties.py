"""Properties files are read as Java reads them, and the environment sets properties too."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from smq.client.secure.properties import parse_properties, read_properties, variables
from smq.model.named_files import NAMED_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a:b", {"a": "b"}),
        ("a b=c", {"a": "b=c"}),
        ("  a\t=\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=b\n! a=b\n\n \t\n", {}),
        ("a=b\\\n   c\r\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        (r"a\ b\:c\=d=e", {"a b:c=d": "e"}),
        (r"\uD83D\uDE00=x\ud83d\ude00y", {"\U0001f600": "x\U0001f600y"}),
        (r"a=\ude00\ud83d", {"a": "\ude00\ud83d"}),
        ("a=\U0001f600", {"a": "\U0001f600"}),
        (r"a=\u0041\t\n\"\q", {"a": 'A\t\n"q'}),
        ('j=x required \\\n  username="a" # b\\\n  ;', {"j": 'x required username="a" # b;'}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=ü\n")
    assert read_properties(path) == {"sasl.password": "ü"}


def test_a_file_that_cannot_be_used_is_refused_with_its_name(tmp_path: Path) -> None:
    large, latin = tmp_path / "large", tmp_path / "latin"
    large.write_bytes(b"#" * (NAMED_BYTES_MAX + 1))
    latin.write_bytes("a=ü".encode("latin-1"))
    os.mkfifo(tmp_path / "pipe")
    for path in (large, latin, tmp_path / "none", tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match=str(path)):
            read_properties(path)


def test_a_pipe_that_somebody_else_has_read_is_refused() -> None:
    """Else its reader would connect in plain bytes."""
    reading, writing = os.pipe()
    os.close(writing)
    with closing(os.fdopen(reading, "rb")), pytest.raises(ValueError, match="has no properties"):
        read_properties(f"/dev/fd/{reading}")


@pytest.mark.parametrize(
    "text",
    [
        "sasl.password=secret", "sasl.password: secret", "sasl.username x\nsecret",
        "password: secret", "PASSWORD:secret", "ssl: {key: secret}",
    ],
)  # fmt: skip
def test_a_text_of_properties_in_place_of_a_path_is_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="whose path looks like properties") as refused:
        read_properties(text)
    assert "secret" not in str(refused.value)


def test_variables_set_properties_by_their_names() -> None:
    environment = {"SMQ_CLIENT_SASL_PASSWORD": "x", "SMQ_PORT": "9", "HOME": "/root"}
    assert variables(environment) == {"sasl.password": "x"}
