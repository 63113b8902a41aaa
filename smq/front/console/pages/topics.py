"""Topics: the list, a topic's partitions and settings, and actions on it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smq.front.console.console import Console, gone_to, lines_of, page_of, told
from smq.front.console.desk import ShownSetting
from smq.front.console.paging import paged, whole
from smq.front.console.sight import check
from smq.front.metrics.facts import Facts, PartitionFacts
from smq.front.rights import rights_of
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType

TOPICS_A_PAGE = 100
PARTITIONS_A_PAGE = 200
CONFIGS_MAX = 200  # Lines of a form: more than a topic has settings.
GROUPS_MAX = 200  # Of those that read a topic.
PARTITIONS_MAX = 100_000  # The most a form may request; the broker has limits of its own.


class TopicRow(NamedTuple):
    """A topic in the list. `records` is the number of offsets it spans."""

    name: str
    partitions: int
    records: int
    unsealed_bytes: int
    sealed_bytes: int
    segments: int


def topic_routes(console: Console) -> list[Route]:
    """The routes."""
    return [*_pages(console), *_actions(console)]


def _pages(console: Console) -> list[Route]:
    async def topics(request: Request) -> Response:
        facts = await console.look(request)
        return await console.made(request, _list, request, facts)

    async def topic(request: Request) -> Response:
        name = request.path_params["topic"]
        check(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
        settings = None
        if rights_of(request).topic(Operation.DESCRIBE_CONFIGS, name):
            settings = await console.ask(request, console.desk(request).settings, name)
        facts = await console.look(request)
        return await console.made(request, _one, request, name, settings, facts)

    return [console.page("/topics", topics), console.page("/topics/{topic}", topic)]


def _list(request: Request, facts: Facts) -> Response:
    part = request.query_params.get("q", "")
    rows = [each for each in rows_of(facts.partitions) if part in each.name]
    values = {"title": "Topics", "here": "/topics", "q": part, "missing": facts.missing}
    return page_of(request, "topics.html", values | paged(rows, TOPICS_A_PAGE, request))


def _one(
    request: Request, name: str, settings: list[ShownSetting] | None, facts: Facts
) -> Response:
    partitions = [each for each in facts.partitions if each.topic == name]
    if settings is None and not partitions:
        sentence = f"there is no topic {name}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, sentence)
    groups = _groups(facts, name)
    values = {
        "title": name,
        "here": "/topics",
        "topic": name,
        "settings": settings,
        "row": next(iter(rows_of(partitions)), TopicRow(name, 0, 0, 0, 0, 0)),
        "groups": groups[:GROUPS_MAX],
        "groups_left": max(0, len(groups) - GROUPS_MAX),
        "most_bytes": max((p.unsealed_bytes + p.sealed_bytes for p in partitions), default=0),
    }
    return page_of(request, "topic.html", values | paged(partitions, PARTITIONS_A_PAGE, request))


def _actions(console: Console) -> list[Route]:
    async def create(request: Request) -> Response:
        form = await console.form(request)
        name, count = form.get("name", "").strip(), form.get("partitions", "").strip()
        partitions = whole(count, "the number of partitions", 1, PARTITIONS_MAX) if count else None
        lines = lines_of(form.get("configs", ""), CONFIGS_MAX, "the form")
        pairs = [line.partition("=") for line in lines if line.strip()]
        configs = {key.strip(): value.strip() for key, _, value in pairs}
        await console.ask(request, console.desk(request).create, name, partitions, configs)
        return gone_to(f"/topics/{quote(name, safe='')}")

    async def change(request: Request) -> Response:
        name, form = request.path_params["topic"], await console.form(request)
        setting, value = form.get("name", ""), form.get("value", "")
        is_reset = form.get("do") == "reset"
        await console.ask(
            request, console.desk(request).set, name, setting, None if is_reset else value
        )
        said = "has its default again" if is_reset else f"is {value}"
        return told(f"{setting} {said}.")

    async def grow(request: Request) -> Response:
        name, form = request.path_params["topic"], await console.form(request)
        added = whole(form.get("added", ""), "the number of partitions", 1, PARTITIONS_MAX)
        count = await console.ask(request, console.desk(request).add_partitions, name, added)
        return told(f"{name} has {count} partitions now.")

    async def delete(request: Request) -> Response:
        name, form = request.path_params["topic"], await console.form(request)
        if form.get("confirm") != name:
            raise ValueError(f"nothing was deleted: type {name} to confirm")
        await console.ask(request, console.desk(request).delete, name)
        return gone_to("/topics")

    return [
        console.action("/topics", create),
        console.action("/topics/{topic}/settings", change),
        console.action("/topics/{topic}/partitions", grow),
        console.action("/topics/{topic}/delete", delete),
    ]


def rows_of(partitions: Iterable[PartitionFacts]) -> list[TopicRow]:
    """One row per topic, sorted by name."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for each in partitions:
        row = sums[each.topic]
        row[0] += 1
        row[1] += max(0, each.end_offset - each.first_offset)
        row[2] += each.unsealed_bytes
        row[3] += each.sealed_bytes
        row[4] += each.segments
    return [TopicRow(name, *sums[name]) for name in sorted(sums)]


def _groups(facts: Facts, topic: str) -> list[tuple[str, int, Any]]:
    lags: dict[str, tuple[int, float | None]] = {}
    for each in facts.offsets:
        if each.topic == topic:
            records, seconds = lags.get(each.group, (0, None))
            known = [x for x in (seconds, each.lag_s) if x is not None]
            lags[each.group] = records + each.lag, max(known, default=None)
    return sorted((group, *lag) for group, lag in lags.items())
