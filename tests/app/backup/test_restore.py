"""Restoring: counters and generations rise; unfinished work begins anew."""

from pathlib import Path

import pytest

from smq.app.backup.restore import GENERATIONS_SKIPPED, IDS_SKIPPED, Restoring
from smq.app.backup.take import Refused
from smq.app.supervisor.datadir import RESTORING, read_meta
from smq.filer.local import LocalStore
from smq.log.losses import BOOT_FILE
from smq.store.store import Store
from tests.app.backup.test_take import served_once, taking


def restoring(tmp_path: Path, *, is_new_cluster: bool = False) -> Restoring:
    root = tmp_path / "filer2"
    return Restoring(
        tmp_path / "s",
        tmp_path / "b",
        LocalStore(root),
        str(root),
        None,
        is_new_cluster,
        lambda _: None,
    )


def snapshot(tmp_path: Path) -> None:
    served_once(tmp_path)
    LocalStore(tmp_path / "filer").put("docs/a", b"a")
    (tmp_path / "data" / "logs" / "0" / "checkpoint").write_bytes(b"")
    taking(tmp_path).run()


@pytest.mark.parametrize("is_new_cluster", [True, False])
def test_what_goes_on_goes_on_above_what_clients_may_have_seen(
    tmp_path: Path, *, is_new_cluster: bool
) -> None:
    snapshot(tmp_path)
    restoring(tmp_path, is_new_cluster=is_new_cluster).run()
    before, after = read_meta(tmp_path / "data"), read_meta(tmp_path / "b")
    assert after.generation == before.generation + GENERATIONS_SKIPPED
    assert (after.cluster_id != before.cluster_id) == is_new_cluster
    store = Store.open(tmp_path / "b" / "store.sqlite")
    assert store.allocate("producer_id", 1) == IDS_SKIPPED["producer_id"]
    store.close()
    assert (tmp_path / "b" / "logs" / "0" / BOOT_FILE).read_bytes()
    assert (tmp_path / "filer2" / "docs" / "a").read_bytes() == b"a"


def test_an_unfinished_one_is_begun_anew(tmp_path: Path) -> None:
    snapshot(tmp_path)
    target = tmp_path / "b"
    (target / "logs" / "7").mkdir(parents=True)
    (target / RESTORING).write_text(str(tmp_path / "filer2"))
    (target / "store.sqlite").write_bytes(b"half")
    LocalStore(tmp_path / "filer2").put("docs/a", b"a")
    restoring(tmp_path).run()
    assert not (target / "logs" / "7").exists()
    assert not (target / RESTORING).exists()


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    snapshot(tmp_path)
    LocalStore(tmp_path / "filer2").put("docs/mine", b"a")
    with pytest.raises(Refused, match="is not empty; restore into an empty one"):
        restoring(tmp_path).run()
    (tmp_path / "b" / "mine").touch()
    with pytest.raises(Refused, match="is not empty; restore into a new directory"):
        restoring(tmp_path).run()
    assert (tmp_path / "b" / "mine").exists()
