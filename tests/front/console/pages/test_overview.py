"""The overview and the charts' numbers."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from smq.front.console.history import History
from smq.security.acls import Operation, ResourceType
from tests.front.console.fake_desk import FACTS, Browser
from tests.front.users import may, rights_for

GROUP = ResourceType.GROUP


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


class Walked(list[Any]):
    """Facts that note which threads look at all of them."""

    threads: ClassVar[set[int]] = set()

    def __iter__(self) -> Iterator[Any]:
        self.threads.add(threading.get_ident())
        return super().__iter__()


@pytest.mark.parametrize(
    "path",
    ["/", "/?part=cards", "/topics", "/topics/clicks", "/groups", "/groups/one?group=readers"],
)
@pytest.mark.parametrize("is_limited", [False, True])
def test_pages_look_at_all_partitions_and_offsets_in_a_thread(
    path: str, *, is_limited: bool
) -> None:
    """Those of 10,000 topics held the loop for 400 ms."""
    walked = Walked(FACTS.partitions), Walked(FACTS.offsets)
    facts = replace(FACTS, partitions=walked[0], offsets=walked[1])
    browser = Browser(facts=facts)
    if is_limited:
        rules = may("alice", Operation.READ, "clicks"), may("alice", Operation.READ, "*", GROUP)
        browser = replace(browser, rights=rights_for(*rules))
        assert browser.log_in("alice").status == 303
    Walked.threads.clear()
    assert browser.get(path).status == 200
    assert Walked.threads
    assert threading.get_ident() not in Walked.threads


class NotedHistory(History):
    """A history that notes which threads read it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = set[int]()

    def rates(self, names: Sequence[str], since_ms: int = 0) -> list[list[float]]:
        self.threads.add(threading.get_ident())
        return super().rates(names, since_ms)

    def lag(self, group: str) -> list[list[float]]:
        self.threads.add(threading.get_ident())
        return super().lag(group)


@pytest.mark.parametrize("path", ["/", "/console/rates", "/console/lag?group=readers"])
def test_the_history_is_read_in_a_thread(path: str) -> None:
    history = NotedHistory()
    assert Browser(history=history).get(path).status == 200
    assert history.threads
    assert threading.get_ident() not in history.threads
