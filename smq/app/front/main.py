"""The main of the front: HTTP, and the only process of ours with asyncio and threads.

It holds nothing that is worth keeping. Its listener is the supervisor's, so that nobody is refused
while it is restarted; what it was uploading is not there, and the client sees the connection end.
"""

from smq.app.process.inheritance import Inheritance


def front_main(inheritance: Inheritance) -> None:
    """Serve HTTP until asked to stop."""
    # The supervisor imports this module; what it needs comes, with its memory, in the fork.
    from smq.app.front.server import serve_http  # noqa: PLC0415

    serve_http(inheritance)
