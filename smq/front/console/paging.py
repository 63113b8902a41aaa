"""Parses numbers in requests: the page of a long list, and form fields."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from smq.model.setting import INT64_MAX


def paged(rows: Sequence[Any], size: int, request: Request) -> dict[str, Any]:
    """The rows of the requested page, and links to its neighbours.

    A page number that does not exist selects the nearest page.
    """
    last = max(1, -(-len(rows) // size))
    asked = request.query_params.get("page", "1")
    page = min(last, max(1, int(asked))) if asked.isdecimal() and len(asked) < 10 else 1
    return {
        "rows": rows[(page - 1) * size : page * size],
        "count": len(rows),
        "page": page,
        "pages": last,
        "newer": _link(request, page - 1) if page > 1 else None,
        "older": _link(request, page + 1) if page < last else None,
    }


def _link(request: Request, page: int) -> str:
    query = {**request.query_params, "page": str(page)}
    return f"?{urlencode(query)}"


def whole(text: str, what: str, least: int = 0, most: int = INT64_MAX) -> int:
    """Parse an integer. Raises ValueError."""
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"{what} is a whole number from {least} to {most}, not {text[:40]!r}")
