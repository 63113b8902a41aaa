"""The overview and the charts' numbers."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from smq.front.console.history import History
from smq.front.metrics.facts import PartitionFacts
from tests.front.console.fake_desk import FACTS, Browser


def test_it_shows_processes_storage_and_who_is_behind() -> None:
    page = Browser(facts=replace(FACTS, missing=["the store"])).text("/")
    assert "shard-1" in page
    assert "not ready" not in page
    assert "Not known now: the store" in page
    assert "12.0 KiB" in page  # Sealed.
    assert 'href="/groups/one?group=readers"' in page


def test_it_refreshes_by_a_part_of_itself() -> None:
    for part, shown in (("cards", "all serve"), ("facts", "shard-1")):
        text = Browser().text(f"/?part={part}")
        assert "<!doctype" not in text
        assert shown in text


def test_charts_get_series_of_numbers() -> None:
    history = History()
    history.add_counters(1000, {"records_in": 0})
    history.add_counters(3000, {"records_in": 8})
    history.add_lags(1000, ("readers",), np.array([5]))
    browser = Browser(history=history)
    rates = browser.get("/console/rates").json
    assert rates["names"][0] == "records_in"
    assert rates["series"][:2] == [[3.0], [4.0]]
    assert browser.get("/console/rates?since=3000").json["series"][0] == []
    assert browser.get("/console/rates?since=x").json["series"][0] == [3.0]
    assert browser.get("/console/lag?group=readers").json["series"] == [[1.0], [5.0]]


class WalkedPartitions(list[PartitionFacts]):
    """Partitions that note which threads look at all of them."""

    threads: ClassVar[set[int]] = set()

    def __iter__(self) -> Iterator[PartitionFacts]:
        self.threads.add(threading.get_ident())
        return super().__iter__()


def test_the_overview_adds_up_all_partitions_in_a_thread() -> None:
    """Those of 10,000 topics held the loop for 400 ms."""
    facts = replace(FACTS, partitions=WalkedPartitions(FACTS.partitions))
    WalkedPartitions.threads.clear()
    assert Browser(facts=facts).get("/").status == 200
    assert WalkedPartitions.threads
    assert threading.get_ident() not in WalkedPartitions.threads
