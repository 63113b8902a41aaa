"""Configs of brokers and other resources in the store, and their history."""

from pathlib import Path

from smq.store.config_changes import Changer
from smq.store.store import Store

BY = Changer("c", "/10.0.0.1", 5)


def test_configs_are_kept_with_who_changed_them(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    assert store.resource_configs.all() == {}
    store.resource_configs.replace("broker", "", {}, {"a": "1", "b": "2"}, BY)
    store.resource_configs.replace("broker", "1", {}, {"a": "3"}, BY)
    store.resource_configs.replace("broker", "", {"a": "1", "b": "2"}, {"b": "4"}, BY)
    store.resource_configs.replace("group", "g", {}, {"a": "5"}, BY)
    store.commit()
    store.resource_configs.replace("group", "g", {"a": "5"}, {}, BY)
    store.close()
    store = Store.open(path)
    assert store.resource_configs.all() == {
        "broker": {"": {"b": "4"}, "1": {"a": "3"}},
        "group": {"g": {"a": "5"}},
    }
    found = [
        (each.name, each.before, each.after)
        for each in store.config_changes.newest(9, "broker", "")
    ]
    assert found == [("b", "2", "4"), ("a", "1", None), ("b", None, "2"), ("a", None, "1")]
    store.close()
