"""Writes the code of SeaweedMQ's messages, beside their .proto files in smq/agent/proto:
`python -m smq.agent.generate`.

Needs grpcio-tools, whose compiler decides which protobuf the code runs with: the extra `grpc` asks
for that one or newer.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent / "proto"
_ROOT = FOLDER.parents[2]
_SUFFIXES = ("_pb2.py", "_pb2.pyi")


def generated() -> dict[str, bytes]:
    """The generated files, by name. Raises RuntimeError."""
    from grpc_tools import protoc  # noqa: PLC0415  (a tool of developers)

    sources = [str(each.relative_to(_ROOT)) for each in sorted(FOLDER.glob("*.proto"))]
    with TemporaryDirectory() as folder:
        target = Path(folder)
        arguments = ["", f"-I{_ROOT}", f"--python_out={target}", f"--pyi_out={target}", *sources]
        if protoc.main(arguments):
            raise RuntimeError("protoc: it refuses a .proto file; the reason is on stderr")
        made = target / FOLDER.relative_to(_ROOT)
        return {each.name: each.read_bytes() for each in sorted(made.iterdir())}


def main() -> None:
    """Replace the generated files."""
    for each in FOLDER.iterdir():
        if each.name.endswith(_SUFFIXES):
            each.unlink()
    for name, content in generated().items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
