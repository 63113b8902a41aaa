"""Groups: members, the picture of the assignment, and resets that are previewed first."""

import re
from dataclasses import replace

from smq.front.console.desk import Move, ShownMember
from smq.front.console.pages.groups import CELLS_MAX, MOVES_MAX, NAME_MAX, OFFSETS_A_PAGE
from smq.front.metrics.facts import PartitionFacts
from tests.front.console.fake_desk import HOSTILE, Browser, FakeDesk, with_groups

MEMBERS = (
    ShownMember("id-1", "", HOSTILE, "/127.0.0.1", (("clicks", 0), ("clicks", 1))),
    ShownMember("id-2", "static", "two", "/127.0.0.1", (("clicks", 2),)),
)
PATH, RESET = "/groups/one?group=readers", "/groups/reset"


def test_groups_with_any_name_are_listed_with_their_lag() -> None:
    page = Browser().text("/groups")
    assert "<script>alert" not in page
    assert re.search(
        r"readers</a></td><td>Stable</td><td class=\"n\">1</td><td class=\"n\">30", page
    )
    assert "1 group" in Browser().text("/groups?q=read")


def test_the_picture_has_a_cell_for_each_partition_in_its_members_colour() -> None:
    page = Browser(FakeDesk(members=MEMBERS)).text(PATH)
    assert re.findall(r'<li class="(\w+)"', page) == ["c0", "c0", "c1"]
    assert "<script>alert" not in page
    alone = Browser(FakeDesk()).text(PATH)
    assert re.findall(r'<li class="(\w+)"', alone) == ["nobody"] * 3


def test_a_large_group_is_bounded() -> None:
    partitions = [PartitionFacts("clicks", n, 1, 0, 1, 0, 0, 0) for n in range(10_000)]
    facts = replace(with_groups(10_000), partitions=partitions)
    page = Browser(FakeDesk(members=MEMBERS), facts).text(PATH)
    assert page.count("<li ") == CELLS_MAX
    assert page.count('<a href="/topics/clicks">') == OFFSETS_A_PAGE


def test_a_reset_is_previewed_and_commits_what_was_shown() -> None:
    browser = Browser()
    shown = browser.said(f"{RESET}?group=readers", topic="clicks", place="earliest")
    assert "Nothing has changed yet" in shown
    assert "clicks,0,5\nclicks,1,5" in shown
    assert 'hx-post="/groups/reset?group=readers"' in shown
    said = browser.said(f"{RESET}?group=readers", do="commit", plan="clicks,0,5\nclicks,1,5")
    assert "2 offsets of readers were reset" in said
    assert browser.desk.done == [
        ("moves", "readers", "clicks", "earliest"),
        ("reset", "readers", [Move("clicks", 0, None, 5, 0), Move("clicks", 1, None, 5, 0)]),
    ]
    for plan in ("", "clicks,0", "clicks,x,5"):
        assert browser.post(f"{RESET}?group=g", do="commit", plan=plan).status == 400


def test_only_the_plan_of_a_reset_is_long() -> None:
    browser, plan = Browser(), "\n".join(f"clicks,{number},5" for number in range(MOVES_MAX))
    said = browser.said(f"{RESET}?group=readers", do="commit", plan=plan)
    assert f"{MOVES_MAX} offsets of readers were reset" in said
    longer = plan + "\nc,0,0"
    assert browser.post(f"{RESET}?group=g", do="commit", plan=longer).status == 400
    long = "x" * (NAME_MAX + 1)
    for field in ("group", "topic", "place"):
        answer = browser.post(f"{RESET}?group=readers", **{field: long})
        assert answer.status == 400
        assert len(answer.body) < 1000
    assert len(browser.desk.done) == 1


def test_a_group_is_deleted_when_its_name_was_typed() -> None:
    browser = Browser()
    assert 'hx-post="/groups/delete?group=readers"' in browser.text(PATH)
    assert browser.post("/groups/delete?group=readers", confirm="reader").status == 400
    assert browser.post("/groups/delete?group=readers", confirm="readers").status == 204
    assert browser.desk.done == [("delete group", "readers")]


def test_a_group_whose_page_opens_is_deleted_however_long_its_name_is() -> None:
    """The form had the name twice: 9,000 letters were more than it may have."""
    browser, name = Browser(), "g" * 9000
    assert browser.post(f"/groups/delete?group={name}", confirm=name).status == 204
    assert browser.desk.done == [("delete group", name)]
