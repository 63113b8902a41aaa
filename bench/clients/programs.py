"""The clients in C and Go, compiled when they are needed, and what they print as a dict."""

import json
import os
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "bench"
CLIENT_SECONDS_MAX = 300


class ClientFailed(Exception):
    """A client ended with an error, or met errors of the broker."""


def raw(port: int, measure: str, **options: object) -> dict[str, float]:
    """Run the raw client (raw/): requests encoded beforehand, one line of JSON back."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return _run([str(_raw_program()), measure, f"--port={port}", *words])


def librdkafka(bootstrap: str, measure: str, **options: object) -> dict[str, float]:
    """Run the librdkafka driver (librdkafka/); `_` in a name of librdkafka's is a dot."""
    ours = {"topic", "records", "record_bytes", "rate", "seconds"}
    words = [
        f"{name.replace('_', '-') if name in ours else name.replace('_', '.')}={value}"
        for name, value in options.items()
    ]
    return _run([str(_driver()), measure, f"bootstrap={bootstrap}", *words])


def seaweedmq_load(
    kind: str, address: str, method: str, inits: Sequence[bytes], seconds: float, **rest: object
) -> dict[str, float]:
    """Run the gRPC client (seaweedmq/), for so long at most."""
    order = {"kind": kind, "address": address, "method": method, **rest}
    order["inits"] = [b64encode(each).decode() for each in inits]
    command = [str(_go_program())]
    done = subprocess.run(
        command,
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise ClientFailed(f"{method} of {address}: {done.stdout}{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def raw_process(port: int, measure: str, **options: object) -> subprocess.Popen[str]:
    """Start the raw client and leave it running."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return subprocess.Popen(
        [str(_raw_program()), measure, f"--port={port}", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def has_librdkafka() -> bool:
    """Whether the C compiler finds librdkafka's headers (Debian: librdkafka-dev)."""
    places = ["/usr/include", *filter(None, os.environ.get("CPATH", "").split(":"))]
    return any((Path(place) / "librdkafka" / "rdkafka.h").exists() for place in places)


def _run(command: list[str]) -> dict[str, float]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CLIENT_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise ClientFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _raw_program() -> Path:
    return _compiled("raw", sorted((HERE / "raw").glob("*.c")), ["-march=native"])


@cache
def _go_program() -> Path:
    program = BUILD / "seaweedmq"
    command = ["go", "build", "-o", str(program), "."]
    subprocess.run(command, cwd=HERE / "seaweedmq", check=True)
    return program


def _driver() -> Path:
    return _compiled("driver", [HERE / "librdkafka" / "driver.c"], ["-lrdkafka"])


def _compiled(name: str, sources: list[Path], flags: list[str]) -> Path:
    program = BUILD / name
    newest = max(source.stat().st_mtime for source in sources[0].parent.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-O2", "-Wall", "-pthread", "-o", str(program), *map(str, sources), *flags]
        subprocess.run(command, check=True)
    return program
