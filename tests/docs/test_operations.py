"""The commands of docs/operations.md work as the page says, in its order."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.model.config import SETTINGS
from smq.testing.smq_broker import SmqBroker
from tests.deploy.test_deploy import METRIC, exported

PAGE = Path("docs/operations.md").read_text()
OF_A_DIRECTORY = ("status", "doctor", "snapshot")


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_every_command_works(
    smq_broker: SmqBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("flights", 2)
        with client.producer() as producer:
            for number in range(20):
                producer.send("flights", b"v%d" % number, key=b"k", partition=number % 2)
        with client.consumer(group="readers") as consumer:
            consumer.assign([("flights", 0), ("flights", 1)])
            consumer.commit({("flights", 0): 5, ("flights", 1): 5})
    monkeypatch.chdir(tmp_path)
    for command in commands():
        where = ["--bootstrap", smq_broker.bootstrap]
        if command[0] in OF_A_DIRECTORY or command[:2] == ["config", "history"]:
            where = ["--data-dir", str(smq_broker.data_dir)]
        if command[0] == "restore":  # The page names the directory.
            where = []
        done = CliRunner().invoke(app, [*command, *where])
        assert done.exit_code == 0, (command, done.output)
        assert done.output, command
    with smq_broker.connect() as client, client.consumer(start="earliest") as consumer:
        for topic in ("flights-2", "flights-3"):
            consumer.assign([(topic, 0), (topic, 1)])
            assert sum(consumer.find("latest").values()) == 20


def test_the_page_names_metrics_and_settings_that_there_are() -> None:
    assert set(METRIC.findall(PAGE)) <= exported()
    sizes = PAGE.partition("## Size")[2].partition("## Look")[0]
    named = {
        name
        for row in sizes.splitlines()
        if row.startswith("|")
        for name in re.findall(r"`([a-z.]+)`", row.split("|")[3])
    }
    assert named
    assert named <= {*SETTINGS}
