"""Bounds of requests, and their helpers."""

from gateway.apis.bounds import PARTITIONS, WHOLE_ELEMENTS_MAX, Cut, answered_in_parts, listing


def test_a_listing_is_cut_where_it_says() -> None:
    cut = Cut(PARTITIONS, PARTITIONS)
    assert listing(cut).cut == cut
    assert listing(cut).elements_max > listing(cut, elements_max=5).elements_max == 5


def test_a_request_that_is_handled_whole_is_answered_in_parts() -> None:
    bounds = answered_in_parts("results", "topics")
    assert bounds.cut == Cut((), ("results", "topics"))
    assert bounds.elements_max == 2 * WHOLE_ELEMENTS_MAX
