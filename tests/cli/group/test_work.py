"""The parts of `smq group` that need no broker; tests/cli/group/test_verbs.py runs the rest."""

from smq.cli.group.work import refused
from smq.model.errors import BrokerError, ErrorCode


def test_only_what_an_operator_can_mend_gets_a_sentence_of_its_own() -> None:
    members = refused("g", BrokerError(ErrorCode.NON_EMPTY_GROUP))
    assert isinstance(members, SystemExit)
    assert "stop its consumers first" in str(members)
    other = BrokerError(ErrorCode.NOT_COORDINATOR)
    assert refused("g", other) is other
