"""Refusals before the first fork; test_supervisor tests the rest."""

import errno
import os
import socket
import stat
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from smq.app.supervisor import serve as module
from smq.app.supervisor.datadir import DataDirectory
from smq.app.supervisor.supervisor import Mains
from smq.log.files.disk import OsDisk
from smq.model.setting import GiB, MiB
from tests.app.fake_broker import config_for


def never(*_: object) -> NoReturn:
    raise AssertionError("nothing may be started")


NOBODY = Mains(never, never, never, never, never)


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    config = config_for(tmp_path, 1, **{"wal.bytes.max": 5 * MiB})
    with pytest.raises(SystemExit, match=r"smq: wal\.bytes\.max: a log needs 4 segments"):
        module.serve(config, 4 * GiB, NOBODY, never)


def test_serve_names_all_wrong_settings_of_logs_and_filer_at_once(
    tmp_path: Path,
) -> None:
    datadir = DataDirectory(tmp_path)
    datadir.start(8)
    datadir.close()
    config = config_for(
        tmp_path, 1, **{"ring.bytes": GiB, "filer.root": tmp_path / "meta.json" / "filer"}
    )
    with pytest.raises(SystemExit) as refusal:
        module.serve(config, 4 * GiB, NOBODY, never)
    rings, filer = str(refusal.value).splitlines()
    assert rings.startswith("smq: ring.bytes: a ring a log, 8 x 1 GiB, is more than")
    assert filer.startswith(f"smq: filer.root: {tmp_path / 'meta.json'} is not a directory")


def test_a_listener_that_other_hosts_reach_without_encryption_is_refused(tmp_path: Path) -> None:
    config = config_for(tmp_path, 1, host="0.0.0.0", advertise="queue.example")
    with pytest.raises(
        SystemExit, match=r"smq: listeners: .* accept that with allow.plaintext=true"
    ):
        module.serve(config, 4 * GiB, NOBODY, never)


def test_keys_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    given = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(tmp_path / "none")}
    with pytest.raises(SystemExit, match=r"smq: ssl.keystore.location \(SSL\): .* cannot be read"):
        module.serve(config_for(tmp_path, 1, port=9092, **given), 4 * GiB, NOBODY, never)


def test_a_file_of_tokens_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    given = {"metrics.tokens.location": str(tmp_path / "none"), "http.port": 0}
    with pytest.raises(SystemExit, match=r"smq: metrics.tokens.location: .* cannot be read"):
        module.serve(config_for(tmp_path, 1, **given), 4 * GiB, NOBODY, never)


def test_the_secret_of_decoys_is_made_once_and_only_for_logins(tmp_path: Path) -> None:
    assert module._decoy_secret(config_for(tmp_path, 1)) == b""
    config = config_for(tmp_path, 1, port=9092, listeners="SASL_PLAINTEXT://127.0.0.1:0")
    secret = module._decoy_secret(config)
    assert len(secret) == module.DECOY_BYTES
    assert module._decoy_secret(config) == secret
    (tmp_path / "decoys.secret").write_bytes(b"")
    assert len(module._decoy_secret(config)) == len(secret), "what is cut short is no secret"
    assert stat.S_IMODE((tmp_path / "decoys.secret").stat().st_mode) & 0o077 == 0


class KeepingDisk(OsDisk):
    """Its file system says nothing and keeps its pages."""

    def drop(self, fd: int, length: int) -> None:
        """See Disk."""


class PlainDisk(OsDisk):
    """It cannot be read past the page cache."""

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (OsDisk, ""),
        (KeepingDisk, "page.cache.bytes: this file system keeps its pages; "),
        (PlainDisk, "page.cache.bytes: it cannot be tried here: "),
    ],
    ids=["drops", "keeps", "cannot"],
)
def test_a_start_bounds_the_page_cache_only_where_pages_are_really_dropped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    disk: type[OsDisk],
    words: str,
) -> None:
    monkeypatch.setattr(module, "OsDisk", disk)
    config = config_for(tmp_path, 1, **{"page.cache.bytes": GiB})
    bounded = module._bound_page_cache(config)
    assert bounded.page_cache_bytes == (-1 if words else GiB)
    assert words in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_refused_start_takes_no_generation(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = config_for(tmp_path, 1, port=other.getsockname()[1])
        with pytest.raises(SystemExit, match="is in use"):
            module.serve(config, 4 * GiB, NOBODY, never)
    assert not (tmp_path / "meta.json").exists()


def test_say_ignores_a_closed_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _text: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    module.say("anything")
