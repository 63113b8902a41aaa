"""The broker's settings: their origins, changes without a restart, and who made which."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smq.front.console.console import Console, form_of, told
from smq.front.console.paging import paged
from smq.front.console.templates import render

CHANGES_A_PAGE = 50
CHANGES_MAX = 1000  # Examined here; `smq config history` shows all.


def setting_routes(console: Console) -> list[Route]:
    """The routes."""

    async def settings(request: Request) -> Response:
        query = request.query_params.get("q", "")
        only_set = request.query_params.get("only") == "set"
        found = await console.ask(console.desk.broker_settings)
        changes = await console.ask(console.desk.changes, CHANGES_MAX)
        shown = [
            each
            for each in found
            if query in each.name and not (only_set and each.source == "default")
        ]
        values = {"title": "Settings", "here": "/settings", "q": query, "only_set": only_set}
        values |= {"settings": shown} | paged(changes, CHANGES_A_PAGE, request)
        return render("settings.html", values)

    async def change(request: Request) -> Response:
        form = await form_of(request)
        name, value = form.get("name", ""), form.get("value", "")
        is_reset = form.get("do") == "reset"
        await console.ask(console.desk.set_broker, name, None if is_reset else value)
        said = "is again what the broker was started with" if is_reset else f"is {value}"
        return told(f"{name} {said}.")

    return [console.page("/settings", settings), console.action("/settings", change)]
