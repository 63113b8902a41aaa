"""The templates and their functions. All inserted values are escaped."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from smq.front.console import text
from smq.front.sessions import Visit

TYPES = {
    "js": "text/javascript",
    "css": "text/css",
    "LICENSE": "text/plain",
    "svg": "image/svg+xml",
}
STATIC = "/console/static"
COLORS = 12  # Classes c0, c1, … for members in a diagram.


@cache
def environment() -> Environment:
    """The template environment, created at first use."""
    made = Environment(
        loader=PackageLoader("smq.front.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": text.size,
        "number": text.number,
        "moment": text.moment,
        "seconds": text.seconds,
        "visible": text.visible,
    }
    made.globals |= {"static": STATIC, "colors": COLORS}
    return made


def render(
    name: str, values: Mapping[str, Any], status: int = 200, visit: Visit | None = None
) -> HTMLResponse:
    """Render a page or a part of one; `visit` is the session of who asks."""
    template = environment().get_template(name)
    return HTMLResponse(template.render(values, visit=visit), status)


def static_routes() -> list[Route]:
    """A route for each static file. No other names exist, so no path can escape."""
    folder = files("smq.front.console") / "static"
    return [
        _static_route(each.name, each.read_bytes())
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in TYPES
    ]


def _static_route(name: str, body: bytes) -> Route:
    kind = TYPES[name.rpartition(".")[2]]
    headers = {"cache-control": "max-age=300", "x-content-type-options": "nosniff"}

    async def answer(_request: object) -> Response:
        return Response(body, 200, headers, f"{kind}; charset=utf-8")

    return Route(f"{STATIC}/{name}", answer, methods=["GET"])
