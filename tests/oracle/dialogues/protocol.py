"""Frames and headers: what closes a connection, and what does not."""

from struct import pack
from typing import Any

from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.metadata import MetadataRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk, encode


@dialogue("ApiVersions", until=0)
def frames(talk: Talk) -> None:
    good = encode(ApiVersionsRequest(), 0)
    for key in (-1, 4, 7, 93, 999, 32767):
        talk.ask_raw(f"API {key}", pack(">h", key) + good[2:])
    for size in (0, 1, 7, -1, -(2**31), 2**31 - 1, 104_857_601):
        talk.ask_raw(f"size {size}", good, size=size)
    talk.ask_raw("a header that is cut", good[:6], size=6)
    talk.ask_raw("a client id beyond the end", good[:8] + pack(">h", 1000))
    talk.ask_raw("a client id of length -2", good[:8] + pack(">h", -2))


@dialogue("ApiVersions", until=0)
def client_ids(talk: Talk) -> None:
    head = encode(MetadataRequest(topics=[]), 1)[:8]
    none = pack(">i", 0)
    how: dict[str, Any] = {"answer": ("Metadata", 1)}
    talk.ask_raw("null", head + pack(">h", -1) + none, **how)
    talk.ask_raw("empty", head + pack(">h", 0) + none, **how)
    talk.ask_raw("not UTF-8", head + pack(">h", 2) + b"\xff\xfe" + none, **how)


@dialogue("ApiVersions", until=0)
def tagged_fields(talk: Talk) -> None:
    """Unknown ones are skipped, in headers and in bodies."""
    how: dict[str, Any] = {"answer": ("Metadata", 9)}
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    good = encode(request, 9)
    header = good[: 8 + 2 + len("oracle")]
    body = good[len(header) + 1 :]
    tag = b"\x01\x63\x03abc"
    talk.ask_raw("none", header + b"\0" + body, **how)
    talk.ask_raw("in the header", header + tag + body, **how)
    talk.ask_raw("in the body", header + b"\0" + body[:-1] + tag, **how)
    talk.ask_raw("one beyond the end", header + b"\0" + body[:-1] + b"\x01\x63\x40abc", **how)
    talk.ask_raw("not in order", header + b"\0" + body[:-1] + b"\x02\x63\0\x62\0", **how)
    talk.ask_raw("one twice", header + b"\0" + body[:-1] + b"\x02\x63\0\x63\0", **how)
