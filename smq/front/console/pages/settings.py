"""The broker's settings: their origins, changes without a restart, and who made which."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smq.front.console.console import Console, page_of, told
from smq.front.console.paging import paged
from smq.front.console.sight import allowed, check_cluster
from smq.front.rights import rights_of
from smq.security.acls import Operation, ResourceType
from smq.security.authorizer import Choice
from smq.store.config_changes import ConfigChange

TOPIC, BROKER = "topic", "broker"  # What changes are of.
CHANGES_A_PAGE = 50
CHANGES_MAX = 1000  # Examined here; `smq config history` shows all.


def _visible(changes: list[ConfigChange], choose: Choice) -> list[ConfigChange]:
    """Those of the broker's settings, and of topics that are chosen: whose settings a user may
    describe."""
    named = (each.resource for each in changes if each.resource_type == TOPIC)
    topics = allowed(choose, named)
    return [
        each
        for each in changes
        if each.resource_type == BROKER or (each.resource_type == TOPIC and each.resource in topics)
    ]


def setting_routes(console: Console) -> list[Route]:
    """The routes."""

    async def settings(request: Request) -> Response:
        query = request.query_params.get("q", "")
        only_set = request.query_params.get("only") == "set"
        check_cluster(request, Operation.DESCRIBE_CONFIGS)
        found = await console.ask(request, console.desk(request).broker_settings)
        changes = await console.ask(request, console.desk(request).changes, CHANGES_MAX)
        rights = rights_of(request)
        if not rights.is_unlimited:
            choose = rights.choice(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
            changes = await console.made(request, _visible, changes, choose)
        shown = [
            each
            for each in found
            if query in each.name and not (only_set and each.source == "default")
        ]
        values = {"title": "Settings", "here": "/settings", "q": query, "only_set": only_set}
        values |= {"settings": shown} | paged(changes, CHANGES_A_PAGE, request)
        return await console.made(request, page_of, request, "settings.html", values)

    async def change(request: Request) -> Response:
        form = await console.form(request)
        name, value = form.get("name", ""), form.get("value", "")
        is_reset = form.get("do") == "reset"
        await console.ask(
            request, console.desk(request).set_broker, name, None if is_reset else value
        )
        said = "is again what the broker was started with" if is_reset else f"is {value}"
        return told(f"{name} {said}.")

    return [console.page("/settings", settings), console.action("/settings", change)]
