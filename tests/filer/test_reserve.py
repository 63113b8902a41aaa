"""The disk keeps the log's reserve."""

from collections import namedtuple
from pathlib import Path

import pytest

from smq.filer.reserve import Reserve
from smq.model.errors import Full

Disk = namedtuple("Disk", "f_bavail f_frsize")


def test_the_disk_keeps_what_the_log_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve(tmp_path / "not" / "made" / "yet", 1000)
    monkeypatch.setattr("os.statvfs", lambda _: Disk(20, 100))
    reserve.check("docs", 1000)
    with pytest.raises(Full, match=r"docs: .* 2000 bytes left, of which the log reserves 1000"):
        reserve.check("docs", 1001)
