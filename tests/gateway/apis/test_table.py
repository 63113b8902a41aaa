"""The table of APIs agrees with the codecs, and each row but the kernel's has a handler."""

import pytest

from gateway.apis.table import API_BY_KEY, APIS, Api, Where
from smq.wire.messages.tables import APIS as WIRE_APIS


def test_the_table_has_every_api_that_has_a_codec() -> None:
    assert [(api.key, api.name) for api in APIS] == [(api.key, api.name) for api in WIRE_APIS]
    assert list(API_BY_KEY.values()) == list(APIS)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_names_its_own_codec(api: Api) -> None:
    assert api.codec.__name__.rpartition(".")[2].replace("_", "") == api.name.lower()
    assert api.read_request.__module__ == api.write_response.__module__ == api.codec.__name__


def test_all_but_what_the_kernel_answers_has_a_handler() -> None:
    assert [api.name for api in APIS if api.handle is None] == ["Produce"]
    assert [api.name for api in APIS if api.where is Where.KERNEL] == ["Produce"]


def test_only_produce_is_advertised_with_versions_it_has_not() -> None:
    differing = [
        api.name
        for api in APIS
        if api.advertised != (api.key, api.versions.start, api.versions.stop - 1)
    ]
    assert differing == ["Produce"]
    assert (API_BY_KEY[0].advertised[1], API_BY_KEY[0].versions.start) == (0, 3)
