"""The main of the front: HTTP, and the broker's only process with asyncio and threads.

It holds no state worth keeping. The supervisor owns the listener, so connections are not refused
while the front restarts. A restart drops uploads in progress and closes their connections.
"""

from smq.app.process.inheritance import Inheritance


def front_main(inheritance: Inheritance) -> None:
    """Serve HTTP until asked to stop."""
    # The supervisor imports this module; what it needs comes, with its memory, in the fork.
    from smq.app.front.server import serve_http  # noqa: PLC0415

    serve_http(inheritance)
