"""Parses options that name a place in a topic: a word, an offset, or a time."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from smq.cli.client import refusal
from smq.model.setting import INT64_MAX

if TYPE_CHECKING:
    from smq.client.kafka.offsets import OffsetPlace

PLACES = "earliest, latest, an offset, or @ and a time: milliseconds since 1970, or ISO 8601"
EPOCH = datetime.fromtimestamp(0, UTC)


def place(text: str, option: str) -> "OffsetPlace":
    """Parse an option's place in the log."""
    from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace  # noqa: PLC0415  (takes its time)

    if text in {"earliest", "latest"}:
        return EARLIEST if text == "earliest" else LATEST
    if re.fullmatch(r"@?[0-9]+", text):
        number = _bounded(text.removeprefix("@"), option)
        return OffsetPlace(timestamp=number) if text[0] == "@" else OffsetPlace(offset=number)
    at, sign, time_text = text.partition("@")
    try:
        time = datetime.fromisoformat(time_text if sign and not at else "")
    except ValueError:
        raise refusal(f"{option} takes {PLACES}; not {text!r}") from None
    time_ms = (time.replace(tzinfo=time.tzinfo or UTC) - EPOCH) // timedelta(milliseconds=1)
    return (
        EARLIEST if time_ms < 0 else OffsetPlace(timestamp=time_ms)
    )  # Kafka gives negative ones meanings.


def _bounded(digits: str, option: str) -> int:
    if len(digits) > len(str(INT64_MAX)) or int(digits) > INT64_MAX:
        raise refusal(f"{option} takes offsets and times up to {INT64_MAX}")
    return int(digits)
