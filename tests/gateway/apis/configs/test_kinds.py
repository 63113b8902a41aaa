"""Each type of resource has what describes and changes it."""

from gateway.apis.configs.kinds import KINDS, Resource


def test_every_type_can_be_described_and_changed() -> None:
    assert list(KINDS) == list(Resource)
