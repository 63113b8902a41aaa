"""Each page for a user without rights, with some, and with all: nothing of others is shown."""

import asyncio
from dataclasses import replace
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, TypeVar

import numpy as np
import pytest

from smq.filer.local import LocalStore
from smq.front.console.console import LONG_FORM_BYTES_MAX
from smq.front.console.desk import BrokerSetting, ShownMember
from smq.front.console.history import History
from smq.front.console.sight import visible
from smq.front.metrics.facts import GroupOffset, LogFacts, NodeFacts, PartitionFacts, TableFacts
from smq.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from smq.security.authorizer import Authorizer, Choice, ChoiceOfAll
from smq.security.principals import Peer, Principal
from smq.security.rules import Rules
from smq.store.config_changes import ConfigChange
from tests.front import users
from tests.front.console.fake_desk import FACTS, Browser, FakeDesk, seen
from tests.front.users import SUPER, may, may_with_cluster, rights_for

Asked = TypeVar("Asked")
FACTS_OF_TWO = replace(
    FACTS,
    partitions=[*FACTS.partitions, PartitionFacts("wages", 0, 1, 0, 777, 0, 0, 0)],
    offsets=[
        *FACTS.offsets,
        GroupOffset("readers", "wages", 0, 1, 555, 9.0),
        GroupOffset("payers", "wages", 0, 1, 444, 9.0),
        GroupOffset("payers", "clicks", 0, 1, 333, 9.0),
    ],
    members={"readers": 1, "payers": 1},
)
DESCRIBES = [
    may("alice", Operation.DESCRIBE, "clicks"),
    may("alice", Operation.DESCRIBE, "readers", ResourceType.GROUP),
]
READS = [*DESCRIBES, may("alice", Operation.READ, "clicks")]
CLUSTER = [may_with_cluster("alice", Operation.DESCRIBE)]
CONFIGS = [may_with_cluster("alice", Operation.DESCRIBE_CONFIGS)]


def history() -> History:
    made = History()
    made.add_counters(1000, {"records_in": 0})
    made.add_counters(3000, {"records_in": 8})
    made.add_lags(1000, ("readers",), np.array([5]))
    return made


def logged_in(*rules: AclBinding, user: str = "alice", desk: FakeDesk | None = None) -> Browser:
    asks = Browser(
        desk or FakeDesk(records=[seen(0, b"pin=4711")]),
        facts=FACTS_OF_TWO,
        history=history(),
        rights=rights_for(*rules),
    )
    assert asks.log_in(user).status == 303
    return asks


PAGES = {  # What each needs.
    "/topics/clicks": DESCRIBES,
    "/topics/clicks/messages": READS,
    "/topics/clicks/messages?text=pin": READS,
    "/topics/clicks/messages?as=ndjson": READS,
    "/topics/clicks/messages/0/0": READS,
    "/topics/clicks/messages/0/0?part=1": READS,
    "/topics/clicks/messages/0/0/value": READS,
    "/groups/one?group=readers": DESCRIBES,
    "/settings": CONFIGS,
    "/console/rates": [*CLUSTER, may("alice", Operation.DESCRIBE, "*")],
    "/console/lag?group=readers": [
        *CLUSTER,
        *DESCRIBES,
        may("alice", Operation.DESCRIBE, "*"),
    ],
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_for_who_has_its_rights(path: str) -> None:
    refused = logged_in().get(path)
    assert (refused.status, b"this needs" in refused.body) == (403, True)
    assert logged_in(*PAGES[path]).get(path).status == 200
    assert logged_in(user=SUPER).get(path).status == 200
    for number in range(len(PAGES[path])):
        fewer = [*PAGES[path][:number], *PAGES[path][number + 1 :]]
        implied = path.startswith(("/topics", "/groups", "/console/lag"))  # Some imply others.
        assert implied or logged_in(*fewer).get(path).status == 403


class WatchedAuthorizer(Authorizer):
    """Refreshed by the loop, which alone may change its rules; asked of many by other threads."""

    def __init__(self, rules: Rules, super_users: frozenset[Principal]) -> None:
        super().__init__(rules, super_users)
        self.refresh = self._refreshed

    def _refreshed(self) -> None:
        assert current_thread() is main_thread()

    def choice(self, *asked: Any) -> Choice:
        choose = super().choice(*asked)
        return lambda names: choose(self._elsewhere(names))

    def choice_of_all(self, *asked: Any) -> ChoiceOfAll:
        choose = super().choice_of_all(*asked)
        return lambda prefix: choose(self._elsewhere(prefix))

    def _elsewhere(self, asked: Asked) -> Asked:
        assert current_thread() is not main_thread()
        return asked


@pytest.mark.parametrize("path", [*PAGES, "/", "/topics", "/groups", "/rules", "/files?in=a/"])
def test_very_many_rules_are_walked_by_threads_and_changed_by_the_loop_alone(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand held the loop for a quarter of a second."""
    monkeypatch.setattr(users, "Authorizer", WatchedAuthorizer)
    reads = may("alice", Operation.READ, "filer/", how=PatternType.PREFIXED)
    changed = [ConfigChange(0, "topic", "wages", "x.ms", None, "1", "c", "10.0.0.7")]
    rules = [*PAGES.get(path, CLUSTER), *CLUSTER, reads]
    assert (
        logged_in(*rules, desk=FakeDesk([seen(0, b"pin")], changed=changed)).get(path).status == 200
    )


def test_a_plan_is_parsed_only_for_who_may_commit_offsets_of_the_group() -> None:
    form = {"do": "commit", "plan": "no plan"}
    reads = may("alice", Operation.READ, "readers", ResourceType.GROUP)
    for rules, status, said in ((DESCRIBES, 403, b"this needs READ"), ([reads], 400, b"the plan")):
        asks = logged_in(*rules)
        answer = asks.post("/groups/reset?group=readers", asks.token, **form)
        assert (answer.status, said in answer.body) == (status, True), answer.body


@pytest.mark.parametrize(
    "path", ["/topics/clicks/messages", "/groups/reset?group=readers", "/groups/reset"]
)
def test_a_long_form_is_read_only_of_who_may_do_something_with_it(path: str) -> None:
    """Twelve of two megabytes of escapes each took the front hundreds of megabytes."""
    asks = logged_in()
    answer = asks.post(path, asks.token, value="x" * LONG_FORM_BYTES_MAX)  # With its name longer.
    assert (answer.status, b"this needs" in answer.body) == (403, True), answer.body


@pytest.mark.parametrize("path", [each for each in PAGES if "clicks" in each])
def test_a_refusal_does_not_tell_whether_there_is_a_topic(path: str) -> None:
    asks = logged_in()
    there, none = asks.get(path), asks.get(path.replace("clicks", "other"))
    assert there.status == none.status == 403
    assert there.body.replace(b"clicks", b"other") == none.body
    assert asks.desk.done == []


@pytest.mark.parametrize("path", ["/", "/?part=cards", "/?part=facts", "/topics", "/groups"])
def test_lists_have_what_a_user_may_describe(path: str) -> None:
    asking = logged_in(), logged_in(*DESCRIBES), logged_in(user=SUPER)
    # Not the head, whose token may have any digits.
    nothing, some, every = (each.text(path).rpartition("<main")[2] for each in asking)
    for page in (nothing, some):
        assert not any(each in page for each in ("wages", "payers", "777", "555", "444", "333"))
        assert "shard-1" not in page
    assert "clicks" not in nothing
    for name in ("wages", "payers", "clicks", "readers", "shard-1"):
        if name in every and name in {"clicks", "readers"} and path != "/groups":
            assert name in some
    assert every != some != nothing


def test_the_overview_counts_what_a_user_may_describe() -> None:
    cards = logged_in(*DESCRIBES).text("/?part=cards").replace("\n", "")
    assert "<dt>Topics</dt><dd>1</dd>" in cards
    assert "<dt>Partitions</dt><dd>3</dd>" in cards
    assert "<dt>Groups</dt><dd>1</dd>" in cards
    assert "Records in" not in cards
    assert "Free on disk" not in cards
    every = logged_in(user=SUPER).text("/?part=cards").replace("\n", "")
    assert "<dt>Groups</dt><dd>2</dd>" in every
    assert "Records in" in every


def test_a_describer_of_the_cluster_sees_its_processes_and_not_its_traffic() -> None:
    page = logged_in(*CLUSTER).text("/")
    assert "shard-1" in page
    assert "Free on disk" in page
    assert "/console/rates" not in page
    assert "wages" not in page
    every = [*CLUSTER, may("alice", Operation.DESCRIBE, "*")]
    assert "/console/rates" in logged_in(*every).text("/")
    denied = may("alice", Operation.DESCRIBE, "wages")
    denied = denied._replace(entry=denied.entry._replace(permission=Permission.DENY))
    assert logged_in(*every, denied).get("/console/rates").status == 403


def test_a_topic_shows_no_settings_and_no_group_to_who_may_not_describe_them() -> None:
    topic = may("alice", Operation.DESCRIBE, "clicks")
    page = logged_in(topic).text("/topics/clicks")
    assert "retention.ms" not in page
    assert "readers" not in page
    configs = may("alice", Operation.DESCRIBE_CONFIGS, "clicks")
    page = logged_in(*DESCRIBES, configs).text("/topics/clicks")
    assert "retention.ms" in page
    assert "readers" in page
    assert "payers" not in page


def test_a_topic_that_there_is_not_is_missing_for_its_describers() -> None:
    rule = may("alice", Operation.DESCRIBE, "c", how=PatternType.PREFIXED)
    answer = logged_in(rule).get("/topics/cats")
    assert (answer.status, b"there is no topic cats" in answer.body) == (404, True)


def test_a_group_shows_topics_that_a_user_may_describe() -> None:
    member = ShownMember("id", "", "client", "/10.0.0.9", (("clicks", 0), ("wages", 0)))
    asks = logged_in(*DESCRIBES, desk=FakeDesk(members=(member,)))
    page = asks.text("/groups/one?group=readers")
    assert "clicks" in page
    assert "wages" not in page
    assert "555" not in page
    assert "/console/lag" not in page
    every = logged_in(user=SUPER, desk=FakeDesk(members=(member,)))
    page = every.text("/groups/one?group=readers")
    assert "wages" in page
    assert "/console/lag" in page


def test_changes_are_of_topics_whose_settings_a_user_may_describe() -> None:
    def change(kind: str, name: str) -> ConfigChange:
        return ConfigChange(0, kind, name, "x.ms", None, f"of-{name}", "c", "10.0.0.7")

    changed = [change("topic", "clicks"), change("topic", "wages"), change("broker", "one")]
    changed.append(change("other", "kind"))
    setting = BrokerSetting("port", "9", "default", is_read_only=True, is_secret=False)
    desk = FakeDesk(of_broker=[setting], changed=changed)
    configs = may("alice", Operation.DESCRIBE_CONFIGS, "clicks")
    page = logged_in(*CONFIGS, configs, desk=desk).text("/settings")
    assert [f"of-{name}" in page for name in ("clicks", "wages", "one", "kind")] == [
        True,
        False,
        True,
        False,
    ]
    assert "2 changes" in page
    assert "of-wages" in logged_in(user=SUPER, desk=desk).text("/settings")


# --- files ---------------------------------------------------------------------------------------

SEGMENT = f"topics/kafka/clicks/partition=0/{0:020}-{9:020}-x.parquet"
OF_WAGES = f"topics/kafka/wages/partition=0/{0:020}-{9:020}-x.parquet"
PAYLOAD = "payloads/kafka/clicks/known"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "filer")
    for key in (SEGMENT, OF_WAGES, PAYLOAD, "docs/a", "notes/b"):
        with store.writing(key) as sink:
            sink.write(b"12345")
    return store


def test_files_are_for_readers_of_their_topics(store: LocalStore) -> None:
    nobody = replace(logged_in(), store=store)
    some = replace(logged_in(*READS), store=store)
    every = replace(logged_in(user=SUPER), store=store)
    for key in (SEGMENT, PAYLOAD):
        assert nobody.get(f"/files/one?key={key}").status == 403
        assert some.get(f"/files/one?key={key}").status == 200
    for key in (OF_WAGES, "docs/a", "docs/none", "topics/kafka/wages/none", "topics/x"):
        assert some.get(f"/files/one?key={key}").status == 403
    crooked = "topics/kafka/clicks/../wages/partition=0/x"
    assert some.get(f"/files/one?key={crooked}").status in {400, 403, 404, 502}
    for prefix in (
        "",
        "t",
        "topics/",
        "topics/kafka/",
        "topics/kafka/clicks",
        "docs/",
        "payloads/",
    ):
        assert some.get(f"/files?in={prefix}").status == 403
        assert every.get(f"/files?in={prefix}").status == 200
    page = some.text("/files?in=topics/kafka/clicks/")
    assert "partition=0" in page
    assert nobody.get("/files?in=topics/kafka/clicks/").status == 403
    after = "/files?in=topics/kafka/clicks/&after=topics/kafka/"
    assert "wages" not in some.text(after)


def test_files_of_a_prefix_are_for_who_may_read_all_of_them(store: LocalStore) -> None:
    docs = may("alice", Operation.READ, "filer/docs/", how=PatternType.PREFIXED)
    asks = replace(logged_in(docs), store=store)
    assert "a</a>" in asks.text("/files?in=docs/")
    assert asks.get("/files/one?key=docs/a").status == 200
    assert asks.get("/files?in=notes/").status == 403


def test_a_payload_names_no_segment_of_a_topic_that_a_user_may_not_read(store: LocalStore) -> None:
    other = may("alice", Operation.READ, "filer/payloads/kafka/x", how=PatternType.PREFIXED)
    asks = replace(logged_in(*READS, other), store=store)
    assert "partition=1" in asks.text(f"/files/one?key={PAYLOAD}")  # FakeDesk's, of clicks.


# --- facts ---------------------------------------------------------------------------------------


def test_new_facts_are_for_super_users() -> None:
    """Facts that nobody has thought of are shown to nobody else."""
    facts = replace(
        FACTS_OF_TWO,
        nodes=[NodeFacts(1, 2, 3, 4, None)],  # type: ignore[arg-type]
        logs=[LogFacts(*[0] * len(LogFacts._fields))],  # type: ignore[arg-type]
        tables=[TableFacts(*["wages"] * len(TableFacts._fields))],  # type: ignore[arg-type]
        slow_requests=9,
    )
    logins = rights_for(*CLUSTER).logins
    assert logins is not None
    some = logins.rights_of(Peer(Principal("User", "alice"), "", "HTTP"))
    found = asyncio.run(visible(facts, some))
    assert (found.nodes, found.logs, found.tables, found.slow_requests) == ((), (), (), 0)
    every = logins.rights_of(Peer(Principal("User", SUPER), "", "HTTP"))
    assert asyncio.run(visible(facts, every)) is facts
