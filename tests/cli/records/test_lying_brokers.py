"""Of the kind of door fault 12: a broker that answers what no broker would.

Whatever it says, a verb ends: well, or with one sentence. It prints no escape of a terminal, writes
nothing but its state, and what it has copied when it ends well is what there was.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.client import connect
from smq.client.consuming import silence
from smq.client.kafka.cluster import Cluster
from smq.wire.records import Record
from tests.client.fake_kafka import FakeKafka, fake_kafka
from tests.client.lying_kafka import ESCAPE, LyingKafka, lying_kafka

DEADLINE_SECONDS = 0.3
BATCHES, RECORDS = 3, 4
LYING, HONEST = "LYING", "HONEST"
VERBS = {
    "copy from": ["copy", "t", "d", "--bootstrap", LYING, "--to", HONEST, "--state", "state"],
    "copy to": ["copy", "t", "d", "--bootstrap", HONEST, "--to", LYING, "--state", "state"],
    "list": ["topic", "list", "--bootstrap", LYING],
    "describe": ["topic", "describe", "t", "--bootstrap", LYING],
    "create": ["topic", "create", "n", "--bootstrap", LYING],
    "groups": ["group", "list", "--bootstrap", LYING],
    "group": ["group", "describe", "g", "--bootstrap", LYING],
    "consume": ["consume", "t", "--bootstrap", LYING],
    "export": ["export", "t", "t.ndjson", "--bootstrap", LYING],
    "produce": ["produce", "t", "lines", "--bootstrap", LYING],
}


class Brokers(NamedTuple):
    lying: LyingKafka
    honest: FakeKafka


def fill(kafka: FakeKafka) -> None:
    kafka.add_topic("t", 2)
    for partition in range(2):
        for _ in range(BATCHES):
            kafka.append("t", partition, [Record(i, i, b"k", b"%d" % i) for i in range(RECORDS)])
    kafka.committed["g"] = {"t": {0: 3, 1: 2}}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Brokers]:
    monkeypatch.chdir(tmp_path)
    _, *others = Cluster.__init__.__defaults__ or ()
    monkeypatch.setattr(Cluster.__init__, "__defaults__", (DEADLINE_SECONDS, *others))
    monkeypatch.setattr(silence, "SILENCE_SECONDS_MAX", DEADLINE_SECONDS)
    monkeypatch.setattr(silence.Silence.__init__, "__defaults__", (DEADLINE_SECONDS,))
    assert connect.__kwdefaults__ is not None
    monkeypatch.setitem(connect.__kwdefaults__, "timeout_s", DEADLINE_SECONDS)
    (tmp_path / "lines").write_text("one\ntwo\n")
    with ExitStack() as stack:
        both = Brokers(stack.enter_context(lying_kafka()), stack.enter_context(fake_kafka()))
        for each in both:
            fill(each)
        yield both


def values(kafka: FakeKafka, topic: str) -> list[list[bytes | None]]:
    return [[record.value for record in each.records()] for each in kafka.topics[topic]]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("seed", range(6))
def test_a_verb_ends_well_or_with_a_sentence(brokers: Brokers, verb: str, seed: int) -> None:
    brokers.lying.lie(random.Random(f"{verb} {seed}").randrange(1 << 30))
    addresses = {LYING: brokers.lying.bootstrap, HONEST: brokers.honest.bootstrap}
    done = CliRunner().invoke(app, [addresses.get(each, each) for each in VERBS[verb]])
    said = f"{brokers.lying.lies} {done.output}"
    assert isinstance(done.exception, SystemExit | None), (said, done.exception)
    assert ESCAPE not in done.output
    assert done.exit_code == 0 or done.output.splitlines()[-1].startswith("smq: "), said
    assert {each.name for each in Path().iterdir()} <= {"lines", "state", "t.ndjson"}


def test_a_copy_from_a_broker_that_lies_about_records_is_right_or_fails(brokers: Brokers) -> None:
    """With a broker that tells its ends truly, and lies about its records."""
    lying, honest = brokers
    lying.apis, lying.share = ["Fetch"], 0.3
    ended_well = 0
    for seed in range(40):
        lying.random = random.Random(seed)
        honest.topics.pop("d", None)
        addresses = ["--bootstrap", lying.bootstrap, "--to", honest.bootstrap]
        done = CliRunner().invoke(app, ["copy", "t", "d", *addresses])
        assert isinstance(done.exception, SystemExit | None), (seed, lying.lies, done.exception)
        copied = values(honest, "d")
        if done.exit_code == 0:
            ended_well += 1
            assert copied == values(lying, "t"), lying.lies
        for got, there in zip(copied, values(lying, "t"), strict=True):
            assert got == there[: len(got)], lying.lies
    assert 0 < ended_well < 40
