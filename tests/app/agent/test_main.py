"""Whether SeaweedMQ's services can be served, before anything is started."""

from importlib.util import find_spec

import pytest

from smq.app.agent import main
from smq.app.agent.main import why_no_grpc
from tests.model.configs import config_of


@pytest.fixture
def without_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object:
        if name == "google.protobuf":
            raise ModuleNotFoundError(name)
        return find_spec(name)

    monkeypatch.setattr(main, "find_spec", found)


@pytest.mark.usefixtures("without_grpc")
def test_without_the_extra_the_options_say_which_one_to_install() -> None:
    said = why_no_grpc(config_of(command_line={"grpc.port": "0", "agent.port": "1"}))
    assert said.startswith("grpc.port and agent.port: ")
    assert "pip install 'smq-broker[grpc]'" in said
    assert why_no_grpc(config_of()) == ""


def test_with_the_extra_there_is_nothing_to_say() -> None:
    assert why_no_grpc(config_of(command_line={"grpc.port": "0"})) == ""
