"""A row of the table of APIs: its versions and its codec come from the registry."""

from gateway.apis.api import Api, Where
from smq.wire.generated import apis, list_groups


def test_versions_are_those_of_the_codec_and_produce_advertises_those_that_it_refuses() -> None:
    api = Api(apis.LIST_GROUPS, Where.COORDINATOR, None)
    first, last = api.versions.start, api.versions.stop - 1
    assert api.advertised == (api.key, first, last)
    kernel = Api(apis.PRODUCE, Where.KERNEL, None)
    assert kernel.versions.start > 0
    assert kernel.advertised[1] == 0


def test_the_codec_is_found_by_its_name() -> None:
    api = Api(apis.LIST_GROUPS, Where.COORDINATOR, None)
    assert api.read_request is list_groups.read_list_groups_request
    assert api.write_response is list_groups.write_list_groups_response
