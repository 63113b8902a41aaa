"""`smq serve` before it serves: options, sources, refusals."""

import socket
import tomllib
from pathlib import Path

import pytest

from smq.model.config import SETTINGS
from tests.app.fake_broker import running
from tests.app.smq_command import smq


def test_the_help_of_serve_names_every_setting() -> None:
    text = smq("serve", "--help").stdout
    for setting in SETTINGS.values():
        assert f"{setting.option} " in text


def test_the_printed_config_is_a_configuration_file_that_gives_the_same(tmp_path: Path) -> None:
    printed = smq("serve", "--print-config", "--port", "0", SMQ_SEAL_MS="5", HOME="/").stdout
    assert tomllib.loads(printed)["seal"]["ms"] == 5
    (tmp_path / "smq.toml").write_text(printed)
    again = smq("serve", "--print-config", "--config", str(tmp_path / "smq.toml"), HOME="/").stdout
    assert again == printed


def test_all_problems_are_refused_at_once_on_stderr() -> None:
    done = smq("serve", "--port", "x", "--shards", "0", SMQ_NONSENSE="1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "smq: nonsense (environment): there is no such setting",
        "smq: port (command line): 'x' is not a whole number",
        "smq: shards (command line): 0 is too small; it must be at least 1",
    ]


def test_a_secret_on_the_command_line_is_refused_and_not_repeated() -> None:
    """Door fault 7: other users of the host read the arguments of every program."""
    done = smq("serve", "--print-config", "--lag-alert-webhook", "https://hooks.example/t0ken")
    assert done.returncode == 1
    assert "--lag-alert-webhook=file:PATH, or set SMQ_LAG_ALERT_WEBHOOK" in done.stderr
    assert "t0ken" not in done.stderr


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "the configuration file {} cannot be read: No such file or directory\n"),
        (b"host = '\xff'", "the configuration file {} is not UTF-8 text; save it as UTF-8\n"),
        (b"port 9092", "configuration file {}: not valid TOML: "),
        (b"port = 'x'", "port (configuration file {}): 'x' is not a whole number\n"),
    ],
)
def test_a_configuration_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / "smq.toml"
    if content is not None:
        path.write_bytes(content)
    done = smq("serve", "--config", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith("smq: " + sentence.format(path))
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_serve_refuses_unusable_settings_with_a_sentence(tmp_path: Path) -> None:
    newer, file = tmp_path / "newer", tmp_path / "file"
    newer.mkdir()
    (newer / "meta.json").write_text('{"format_version": 99}')
    file.write_text("")
    with running(tmp_path / "served", 1) as broker, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for options, words in (
            (("--data-dir", str(tmp_path / "served")), f"served by process {broker.process.pid}"),
            (("--data-dir", str(newer)), "made by a newer SMQ: its format_version is 99"),
            (("--data-dir", str(file)), "it is not a directory"),
            (("--data-dir", str(tmp_path / "new"), "--port", str(port)), f"port {port} of"),
            (("--data-dir", str(tmp_path / "new"), "--ring-bytes", "5MiB"), "not a multiple"),
            (("--data-dir", str(tmp_path / "new"), "--ring-bytes", "900TiB"), "more than this"),
            (("--data-dir", str(tmp_path / "new"), "--filer-root", str(file)), f"{file} is not a"),
        ):
            done = smq("serve", "--port", "0", *options)
            assert done.returncode == 1, options
            assert done.stdout == ""
            assert done.stderr.startswith("smq: "), done.stderr
            assert done.stderr.count("\n") == 1
            assert words in done.stderr
