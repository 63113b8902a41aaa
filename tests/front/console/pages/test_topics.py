"""The topics' pages."""

from dataclasses import replace

from smq.front.console.pages.topics import CONFIGS_MAX, PARTITIONS_A_PAGE, TOPICS_A_PAGE, rows_of
from smq.front.metrics.facts import PartitionFacts
from tests.front.console.fake_desk import FACTS, Browser, FakeDesk

MANY = [PartitionFacts(f"topic-{n:04}", 0, 1, 0, 1, 0, 0, 0) for n in range(1000)]
WIDE = [PartitionFacts("clicks", n, 1, 0, 1, 0, 0, 0) for n in range(10_000)]


def test_a_row_sums_up_its_partitions() -> None:
    (row,) = rows_of(FACTS.partitions)
    assert row == ("clicks", 3, 60, 3072, 12_288, 6)


def test_many_topics_are_paged_and_found_by_a_part_of_the_name() -> None:
    browser = Browser(facts=replace(FACTS, partitions=MANY))
    page = browser.text("/topics?page=2")
    assert f"topic-{TOPICS_A_PAGE:04}" in page
    assert "topic-0000<" not in page
    assert "page 2 of 10" in page
    found = browser.text("/topics?q=0999")
    assert "1 topic" in found
    assert "topic-0999" in found


def test_ten_thousand_partitions_are_paged() -> None:
    page = Browser(facts=replace(FACTS, partitions=WIDE)).text("/topics/clicks?page=3")
    assert page.count("Messages of partition") == PARTITIONS_A_PAGE
    assert len(page) < 200_000


def test_a_partition_shows_its_leader_and_the_leaders_epoch() -> None:
    led = [PartitionFacts("clicks", 0, 2, 0, 1, 0, 0, 0, leader_epoch=77)]
    page = Browser(facts=replace(FACTS, partitions=led)).text("/topics/clicks")
    assert '<td class="n">2</td><td class="n">77</td>' in page


def test_a_topic_shows_settings_groups_and_where_its_bytes_are() -> None:
    page = Browser().text("/topics/clicks")
    assert "retention.ms" in page
    assert "this topic" in page
    assert "1.0 KiB in the log, 4.0 KiB sealed" in page
    assert "group=readers" in page
    assert "<script>alert" not in page


def test_actions_do_what_their_forms_say() -> None:
    browser = Browser(FakeDesk())
    made = browser.post("/topics", name="new", partitions="4", configs="a=1\nb = x=y\n")
    assert made.headers["hx-redirect"] == "/topics/new"
    many = "a=1\n" * (CONFIGS_MAX + 1)
    assert browser.post("/topics", name="new", partitions="4", configs=many).status == 400
    assert "is 7" in browser.said("/topics/clicks/settings", name="retention.ms", value="7")
    assert "default" in browser.said("/topics/clicks/settings", name="retention.ms", do="reset")
    assert "5 partitions" in browser.said("/topics/clicks/partitions", added="2")
    assert browser.post("/topics/clicks/delete", confirm="click").status == 400
    assert browser.post("/topics/clicks/delete", confirm="clicks").status == 204
    assert browser.desk.done == [
        ("create", "new", 4, {"a": "1", "b": "x=y"}),
        ("set", "clicks", "retention.ms", "7"),
        ("set", "clicks", "retention.ms", None),
        ("add", "clicks", 2),
        ("delete", "clicks"),
    ]
