"""No error tells what a secret setting holds."""

import pytest

from smq.model.urls import hide, parts_of_url, path_of_file_url

URLS = [
    *("http://127.0.0.1:1/s3cret-path", "https://u:s3cret@host/x", "http://u:s3cret@127.0.0.1:x/"),
    *("postgresql+psycopg2://u:s3cret@host:1/db", "https://host/x?token=s3cret&a=b", "u:s3cret@h"),
    *("http://h/hooks/T0000/s3cret-s3cret", "http://u:s3cret%21@h/", "http://s3cret-word@h"),
]


@pytest.mark.parametrize("url", URLS)
def test_secrets_of_a_url_are_hidden_in_library_errors(url: str) -> None:
    """Door fault 7: the address of a catalog was told in the error of its connection."""
    host, _, path = url.partition("://")[2].partition("/")
    for text in (
        url,
        f"Failed to parse: {url}",
        f"Failed to parse: {url.partition('://')[2]}",
        f"Max retries exceeded with url: /{path}/v1/config?warehouse=x",
        f"HTTPConnectionPool(host={host!r}): no route",
        f"the password {'s3cret!' if '%21' in url else 's3cret'} of u is wrong" * ("u:" in url),
    ):
        assert "s3cret" not in hide(text, parts_of_url(url)), text


def test_text_without_secrets_is_unchanged() -> None:
    said = "iceberg: no answer of catalog.example:8181 (connection refused)"
    assert hide(said, parts_of_url("http://catalog.example:8181/iceberg")) == said
    assert hide(said, parts_of_url("http://catalog.example:8181")) == said
    assert hide(said, parts_of_url("")) == said


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///etc/smq/jwks.json", "/etc/smq/jwks.json"),
        ("file:/etc/a%20b", "/etc/a b"),
        ("FILE://localhost/x", "/x"),
        *((url, "") for url in ("file://host/x", "file:x", "file:///x?a", "file:///x#a")),
        *((url, "") for url in ("https://host/x", "/x", "", "file:///%00", "file://[/x")),
    ],
)
def test_a_file_url_names_an_absolute_path_of_this_host(url: str, path: str) -> None:
    assert path_of_file_url(url) == path
