"""A refusal is a sentence for each problem."""

import sys
from pathlib import Path

import pytest

from smq.app.process.refusal import or_refuse, refuse_wire_only
from tests.app.fake_broker import config_for


def test_a_config_passes_and_problems_end_the_program(tmp_path: Path) -> None:
    config = config_for(tmp_path, 1)
    assert or_refuse(config) is config
    with pytest.raises(SystemExit, match="smq: port: no\nsmq: host: no"):
        or_refuse(["port: no", "host: no"])


def test_where_no_broker_runs_a_sentence_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_wire_only()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit, match=r"^smq: SMQ's broker .* this is darwin, from which smq"):
        refuse_wire_only()
