"""The main of the agent: SeaweedMQ's services, with gRPC, asyncio and threads of its own.

It holds no state worth keeping: what it has answered is in the logs, and groups' offsets are the
coordinator's. The supervisor keeps its ports; a restart ends open streams, which clients begin
again.
"""

from importlib.util import find_spec

from smq.app.process.inheritance import Inheritance
from smq.model.config import Config
from smq.security.listeners import grpc_ports

MISSING = "SeaweedMQ's services need gRPC, which is not installed: `pip install 'smq-broker[grpc]'`"


def why_no_grpc(config: Config) -> str:
    """Why the services that are configured cannot be served, as a sentence; "" if they can."""
    ports = grpc_ports(config)
    if not ports or (_is_there("grpc") and _is_there("google.protobuf")):
        return ""
    return f"{' and '.join(ports)}: {MISSING}"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # Nor is there what it is in.
        return False


def agent_main(inheritance: Inheritance) -> None:
    """Serve gRPC until asked to stop."""
    # The supervisor imports this module; what it needs comes, with its threads, in the fork.
    from smq.app.agent.server import serve_grpc  # noqa: PLC0415

    serve_grpc(inheritance)
