"""What is refused before anything is forked; the rest is told by test_supervisor."""

import resource
import socket
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from smq.app import serve as module
from smq.app.supervisor import Mains
from smq.model.setting import GiB, MiB
from tests.app.fake_broker import config_for


def never(*_: object) -> NoReturn:
    raise AssertionError("nothing may be started")


NOBODY = Mains(never, never, never, never)


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    config = config_for(tmp_path, 1, **{"wal.bytes.max": 5 * MiB})
    with pytest.raises(SystemExit, match=r"smq: wal\.bytes\.max: a log needs 4 segments"):
        module.serve(config, 4 * GiB, NOBODY, never)


def test_a_refused_start_takes_no_generation(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = config_for(tmp_path, 1, port=other.getsockname()[1])
        with pytest.raises(SystemExit, match="is in use"):
            module.serve(config, 4 * GiB, NOBODY, never)
    assert not (tmp_path / "meta.json").exists()


def test_a_process_may_open_as_many_files_as_it_has_clients(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        module.raise_descriptor_limit(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100 + module.DESCRIPTORS_OF_OURS
        module.raise_descriptor_limit(2**40)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard == before[1]
        assert f"may open {hard} files a process: too few" in capsys.readouterr().out
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_nobody_reading_the_news_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _text: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    module.say("anything")
