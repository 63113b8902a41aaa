"""The commands of docs/sql.md run, one after the other, as they are written."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from smq.testing.smq_broker import SmqBroker

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
WAIT_S = 240
USERS = ["ann", "bob", "ann"]


def commands(broker: SmqBroker) -> list[str]:
    """The lines of the page's first block, for this broker."""
    (block, *_) = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = f"{sys.executable} -m smq.cli.main sql"
    found = []
    for line in block.splitlines():
        place = "" if "--data-dir" in line else f"--bootstrap {broker.bootstrap}"
        whole = line.partition("#")[0].strip().replace("smq sql", f"{program} {place}", 1)
        found.append(whole.replace("--data-dir DIR", f"--data-dir {broker.data_dir}"))
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_sql_page_work(smq_broker: SmqBroker, tmp_path: Path) -> None:
    with smq_broker.connect() as client:
        client.create_topic("clicks", 2)
        with client.producer() as producer:
            for user in USERS:
                producer.send("clicks", json.dumps({"user": user}).encode())
    said: list[str] = []
    environment = os.environ | {"PYTHONPATH": str(PAGE.parents[1])}
    for command in commands(smq_broker):
        if "--follow" in command:
            said.append(first_result_of(command, smq_broker, environment))
            continue
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, timeout=WAIT_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        said.append(done.stdout)
    assert len(said) == 7
    assert re.search(r"ann\W+2\b", said[0])
    assert "clicks" in said[1]
    assert "not sealed, from the broker" in said[2]
    lines = (tmp_path / "clicks.ndjson").read_text().splitlines()
    assert sorted(json.loads(json.loads(line)["value"])["user"] for line in lines) == sorted(USERS)
    assert pq.read_metadata(tmp_path / "clicks.parquet").num_rows == len(USERS)
    assert re.search(r"[1-9]", said[5])
    assert re.search(r"\b[1-9]", said[6])


def first_result_of(command: str, broker: SmqBroker, environment: dict[str, str]) -> str:
    """What a query that follows says while records come; then it is stopped as by Ctrl-C."""
    process = subprocess.Popen(
        f"exec {command}", shell=True, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    found = b""
    try:
        with broker.connect() as client, client.producer() as producer:
            while not re.search(rb"\d", found) and process.poll() is None:
                producer.send("clicks", b'{"user": "eve"}').result(60)
                found += process.stdout.read() or b""
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()
    return found.decode()
