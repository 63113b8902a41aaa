"""The verbs work with exactly the rights that Kafka's clients need, and with no less."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.security.acls import Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from tests.broker.guarded import address_of, allow, config_of, guarded_broker, new_topic

SMQ = Path(sys.executable).with_name("smq")
SECONDS_MAX = 120
LINES = "a\nb\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with guarded_broker(tmp_path_factory.mktemp("b")) as broker:
        yield broker


class As:
    """The verbs of a user."""

    def __init__(self, user: str, broker: SmqBroker, directory: Path) -> None:
        config = directory / f"{user}.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in config_of(user).items()))
        self._at = ["--bootstrap", address_of(broker), "--command-config", str(config)]

    def run(self, verb: str, *arguments: object, given: str = "") -> str:
        """What a verb writes, which must succeed."""
        done = self._done(verb, arguments, given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, verb: str, *arguments: object, given: str = "") -> str:
        """What a verb says, which must fail."""
        done = self._done(verb, arguments, given)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def _done(
        self, verb: str, arguments: tuple[object, ...], given: str
    ) -> subprocess.CompletedProcess[str]:
        command = [str(SMQ), verb, *map(str, arguments), *self._at]
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )


def test_verbs_that_write_need_write_and_those_that_read_need_read(
    broker: SmqBroker, tmp_path: Path
) -> None:
    topic, file = new_topic(broker), tmp_path / "out.jsonl"
    writer, reader = (As(user, broker, tmp_path) for user in ("writer", "reader"))
    count = f'SELECT count(*) AS n FROM "{topic}"'
    assert "may not" in reader.refused("produce", topic, given=LINES)
    writer.run("produce", topic, given=LINES)
    assert sorted(reader.run("consume", topic).split()) == ["a", "b"]
    reader.run("export", topic, file)
    assert reader.run("sql", count, "--format", "csv").split() == ["n", "2"]
    assert "may not" in reader.refused("import", topic, file)
    writer.run("import", topic, file)
    assert len(reader.run("consume", topic).split()) == 4
    for verb, *arguments in (
        ["consume", topic],
        ["export", topic, tmp_path / "none.jsonl"],
        ["sql", count],
    ):
        assert "may not" in writer.refused(str(verb), *arguments)


def test_a_copy_needs_read_of_the_one_topic_and_write_of_the_other(
    broker: SmqBroker, tmp_path: Path
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    writer, reader = (As(user, broker, tmp_path) for user in ("writer", "reader"))
    writer.run("produce", source, given=LINES)
    for user in (writer, reader):
        assert "may not" in user.refused("copy", source, target)
    assert reader.run("consume", target) == ""
    allow(broker, "reader", ResourceType.TOPIC, target, Operation.WRITE)
    reader.run("copy", source, target)
    assert sorted(reader.run("consume", target).split()) == ["a", "b"]
