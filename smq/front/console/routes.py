"""All routes of the console."""

from starlette.routing import Route

from smq.front.console.console import Console
from smq.front.console.pages.access import access_routes
from smq.front.console.pages.files import file_routes
from smq.front.console.pages.groups import group_routes
from smq.front.console.pages.login import login_routes
from smq.front.console.pages.messages import message_routes
from smq.front.console.pages.overview import overview_routes
from smq.front.console.pages.settings import setting_routes
from smq.front.console.pages.topics import topic_routes
from smq.front.console.templates import static_routes


def console_routes(console: Console) -> list[Route]:
    """The routes of all pages, actions, scripts and styles."""
    return [
        *login_routes(console),
        *overview_routes(console),
        *topic_routes(console),
        *message_routes(console),
        *group_routes(console),
        *file_routes(console),
        *setting_routes(console),
        *access_routes(console),
        *static_routes(),
    ]
