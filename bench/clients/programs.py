"""The two C clients, compiled when they are needed, and what they print as a dict."""

import json
import os
import subprocess
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
