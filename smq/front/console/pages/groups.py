"""Groups: the list, a group's members and offsets, and a preview of a reset."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smq.front.console.console import Console, gone_to, lines_of, page_of, told
from smq.front.console.desk import GroupRow, Move, ShownGroup
from smq.front.console.paging import paged, whole
from smq.front.console.sight import Names, allowed, check, sees_all
from smq.front.console.templates import COLORS
from smq.front.metrics.alerts import GroupLag, lags_of
from smq.front.metrics.facts import Facts, GroupOffset
from smq.front.rights import rights_of
from smq.security.acls import Operation, ResourceType

GROUPS_A_PAGE = 100
OFFSETS_A_PAGE = 200
MEMBERS_MAX = 500  # In the table: a group may have any number.
CELLS_MAX = 2000  # In the diagram.
TOPICS_MAX = 1000  # In the diagram, and in the list to choose from.
MOVES_MAX = 20_000  # Partitions in one reset.
NAME_MAX = 32_767  # Characters: a string of Kafka's has no more bytes.


def group_routes(console: Console) -> list[Route]:
    """The routes. A group's name may have any characters, so it is not part of the path; it is no
    part of a form either, which is read for who may do something with the group."""
    return [*_pages(console), *_actions(console)]


def _pages(console: Console) -> list[Route]:
    async def groups(request: Request) -> Response:
        listed = await console.ask(request, console.desk(request).groups)
        facts = await console.look(request)
        return await console.made(request, _list, request, listed, facts)

    async def group(request: Request) -> Response:
        name = _named(request)
        found = await console.ask(request, console.desk(request).group, name)
        rights = rights_of(request)
        assigned = (topic for each in found.members for topic, _ in each.partitions)
        choose = rights.choice(Operation.DESCRIBE, ResourceType.TOPIC)
        topics = await console.made(request, allowed, choose, assigned)
        facts = await console.look(request)
        make = partial(_one, sees=sees_all(rights))
        return await console.made(request, make, request, found, topics, facts)

    return [console.page("/groups", groups), console.page("/groups/one", group)]


def _list(request: Request, listed: list[GroupRow], facts: Facts) -> Response:
    part, lags = request.query_params.get("q", ""), lags_of(facts.offsets)
    rows = [
        (each, facts.members.get(each.group, 0), lags.get(each.group, GroupLag(0, 0.0)))
        for each in listed
        if part in each.group
    ]
    values = {"title": "Groups", "here": "/groups", "q": part}
    return page_of(request, "groups.html", values | paged(rows, GROUPS_A_PAGE, request))


def _one(
    request: Request,
    group: ShownGroup,
    topics: Names,
    facts: Facts,
    *,
    sees: Callable[[], bool],
) -> Response:
    rows = [each for each in facts.offsets if each.group == group.group]
    values = _values(_of_topics(group, topics), facts, rows, has_history=sees())
    return page_of(request, "group.html", values | paged(rows, OFFSETS_A_PAGE, request))


def _actions(console: Console) -> list[Route]:
    async def reset(request: Request) -> Response:
        name = _named(request)
        form = await console.long_form(request)
        if any(len(each) > NAME_MAX for field, each in form.items() if field != "plan"):
            raise ValueError(f"a field has at most {NAME_MAX} characters")
        if form.get("do") == "commit":
            check(request, Operation.READ, ResourceType.GROUP, name)  # A plan takes long to parse.
            moves = await console.made(request, moves_of, form.get("plan", ""))
            await console.ask(request, console.desk(request).reset, name, moves)
            return told(f"{len(moves)} offsets of {name} were reset.")
        topic, place = form.get("topic", "").strip(), form.get("place", "").strip()
        moves = await console.ask(request, console.desk(request).moves, name, topic, place)
        if len(moves) > MOVES_MAX:
            raise ValueError(f"a reset moves at most {MOVES_MAX} partitions; name a topic")
        return await console.made(request, _preview, request, name, moves)

    async def delete(request: Request) -> Response:
        name = request.query_params.get("group", "")
        if (await console.form(request)).get("confirm") != name:
            raise ValueError(f"nothing was deleted: type {name} to confirm")
        await console.ask(request, console.desk(request).delete_group, name)
        return gone_to("/groups")

    return [
        console.action("/groups/reset", reset),
        console.action("/groups/delete", delete),
    ]


def _named(request: Request) -> str:
    """The group that a request names, which who asks may describe."""
    name = request.query_params.get("group", "")
    check(request, Operation.DESCRIBE, ResourceType.GROUP, name)
    return name


def _preview(request: Request, group: str, moves: list[Move]) -> Response:
    values = {"group": group, "moves": moves, "plan": plan_of(moves)}
    return page_of(request, "moves.html", values)


def plan_of(moves: list[Move]) -> str:
    """Encode a plan as a form field, so that exactly the plan shown is committed."""
    return "\n".join(f"{each.topic},{each.partition},{each.after}" for each in moves)


def moves_of(plan: str) -> list[Move]:
    """Decode the moves from that field. Raises ValueError."""
    rows = [line.split(",") for line in lines_of(plan, MOVES_MAX, "a plan")]
    if any(len(row) != 3 for row in rows):
        raise ValueError("the plan is not valid; preview it again")
    return [
        Move(topic, whole(partition, "a partition"), None, whole(offset, "an offset"), 0)
        for topic, partition, offset in rows
    ]


def _of_topics(group: ShownGroup, topics: Names) -> ShownGroup:
    """A group of which only partitions of some topics are known."""
    members = (
        each._replace(partitions=tuple(name for name in each.partitions if name[0] in topics))
        for each in group.members
    )
    return group._replace(members=tuple(members))


def _values(
    group: ShownGroup, facts: Facts, rows: list[GroupOffset], *, has_history: bool
) -> dict[str, Any]:
    lags = lags_of(rows)
    owners = {
        name: number for number, member in enumerate(group.members) for name in member.partitions
    }
    topics = {topic for topic, _ in owners} | {each.topic for each in rows}
    cells = [each for each in facts.partitions if each.topic in topics]
    first = sorted(topics)[:TOPICS_MAX]
    picture: dict[str, list[tuple[int, int | None]]] = {topic: [] for topic in first}
    drawn = [each for each in cells if each.topic in picture][:CELLS_MAX]
    for each in drawn:
        owner = owners.get((each.topic, each.partition))
        picture[each.topic].append((each.partition, owner))
    return {
        "title": group.group,
        "here": "/groups",
        "group": group,
        "lag": lags.get(group.group, GroupLag(0, 0.0)),
        "picture": [*picture.items()],
        "cells_left": len(cells) - len(drawn),
        "members": group.members[:MEMBERS_MAX],
        "color_of": lambda owner: f"c{owner % COLORS}",
        "owners": {f"{t}-{p}": group.members[n] for (t, p), n in owners.items()},
        "topics": [*picture],
        "history": f"/console/lag?{urlencode({'group': group.group})}" if has_history else "",
    }
