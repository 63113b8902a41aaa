"""Bounds of requests, and their helpers."""

from gateway.apis.bounds import PARTITIONS, WHOLE_ELEMENTS_MAX, Cut, answered_in_parts, listing


def test_a_listing_is_cut_where_it_says() -> None:
    cut = Cut(4, PARTITIONS, PARTITIONS)
    assert listing(cut).cuts == (cut,)
    assert listing(cut).elements_max > listing(cut, elements_max=5).elements_max == 5


def test_a_request_that_is_handled_whole_is_answered_in_parts_in_every_version() -> None:
    bounds = answered_in_parts("results", "topics")
    [cut] = bounds.cuts
    assert (cut.first_version, cut.request, cut.response) == (0, (), ("results", "topics"))
    assert bounds.elements_max == 2 * WHOLE_ELEMENTS_MAX
