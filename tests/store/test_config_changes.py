"""The history of settings: newest first, bounded, durable with the commit."""

from pathlib import Path

import pytest

from smq.model.setting import HIDDEN
from smq.store import config_changes
from smq.store.config_changes import Changer, ConfigChange, open_config_changes
from smq.store.store import Store


def by(wall_ms: int, client: str = "c") -> Changer:
    return Changer(client, "/127.0.0.1", wall_ms)


def test_each_setting_that_differs_is_a_change(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s")
    store.config_changes.note("topic", "t", {"a": "1", "b": "2"}, {"a": "1", "b": "3"}, by(7))
    store.config_changes.note("topic", "u", {"a": "1"}, {}, by(8, "x" * 1000))
    store.commit()
    changes = open_config_changes(tmp_path / "s")
    assert changes.newest(10) == [
        ConfigChange(8, "topic", "u", "a", "1", None, "x" * 255, "/127.0.0.1"),
        ConfigChange(7, "topic", "t", "b", "2", "3", "c", "/127.0.0.1"),
    ]
    assert [each.resource for each in changes.newest(1)] == ["u"]
    assert [each.name for each in changes.newest(10, "topic", "t")] == ["b"]
    assert changes.newest(10, "broker", "t") == []
    changes.close()
    store.close()


def test_old_changes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_changes, "CHANGES_MAX", 5)
    store = Store.open(tmp_path / "s")
    for wall_ms in range(20):
        before, after = {"a": str(wall_ms)}, {"a": str(wall_ms + 1)}
        store.config_changes.note("topic", "t", before, after, by(wall_ms))
    found = [each.changed_ms for each in store.config_changes.newest(100)]
    assert found == [19, 18, 17, 16, 15]
    store.close()


def test_of_long_texts_the_beginning_is_kept_and_how_long_they_are(tmp_path: Path) -> None:
    """Flips of a list of 32 KiB made a store of 625 MiB, which each start read."""
    store, group, wide = Store.open(tmp_path / "s"), "g" * 30_000, "\u00e9" * 5_000
    short = "t" * config_changes.TEXT_BYTES_MAX
    store.config_changes.note("group", group, {"a": short, "b": "1"}, {"a": wide, "b": "2"}, by(7))
    second, first = store.config_changes.newest(10, "group", group)
    assert first.resource == second.resource == "g" * 512 + "… (30000 bytes)"
    assert (first.before, first.after) == (short, "\u00e9" * 256 + "… (10000 bytes)")
    store.config_changes.note("group", group, {"a": wide}, {"a": wide[:-1] + "e"}, by(8))
    assert store.config_changes.newest(1)[0].after == "\u00e9" * 256 + "… (9999 bytes)"
    store.close()


def test_a_secret_that_was_changed_once_is_not_shown(tmp_path: Path) -> None:
    """Door fault 7: the webhook could change at run time in earlier versions."""
    store = Store.open(tmp_path / "s")
    before, after = {"lag.alert.webhook": "http://x/t0ken"}, {"lag.alert.webhook": ""}
    store.config_changes.note("broker", "", before, after, by(7))
    [change] = store.config_changes.newest(1)
    assert (change.name, change.before, change.after) == ("lag.alert.webhook", HIDDEN, "")
    store.close()
