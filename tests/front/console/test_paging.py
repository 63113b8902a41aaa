"""Pages of long lists, and numbers of forms."""

import pytest
from starlette.requests import Request

from smq.front.console.paging import paged, whole


def request_for(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


@pytest.mark.parametrize(
    ("query", "page", "rows"),
    [
        ("", 1, [0, 1]),
        ("page=2", 2, [2, 3]),
        ("page=3", 3, [4]),
        ("page=99", 3, [4]),
        ("page=0", 1, [0, 1]),
        ("page=-1", 1, [0, 1]),
        ("page=" + "9" * 5000, 1, [0, 1]),
    ],
)
def test_a_page_that_is_not_there_is_the_nearest(query: str, page: int, rows: list[int]) -> None:
    found = paged(range(5), 2, request_for(query))
    assert found["page"] == page
    assert list(found["rows"]) == rows


def test_links_keep_the_rest_of_the_query() -> None:
    found = paged(range(5), 2, request_for("q=a%26b&page=2"))
    assert found["newer"] == "?q=a%26b&page=1"
    assert found["older"] == "?q=a%26b&page=3"
    assert paged([], 2, request_for(""))["older"] is None


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "9" * 30, "\u0664"])
def test_a_parameter_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        whole(text, "it")
