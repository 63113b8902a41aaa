"""Parses places that an operator types: newest, earliest, an offset, or @ and a time."""

import re
from datetime import UTC, datetime, timedelta

from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace
from smq.model.setting import INT64_MAX

WORDS = {"newest": LATEST, "latest": LATEST, "earliest": EARLIEST}
EPOCH = datetime.fromtimestamp(0, UTC)


def place_of(text: str) -> OffsetPlace:
    """Parse a place. Raises ValueError with a sentence."""
    if text in WORDS:
        return WORDS[text]
    if re.fullmatch(r"@?[0-9]{1,19}", text) and int(text.lstrip("@")) <= INT64_MAX:
        number = int(text.lstrip("@"))
        return OffsetPlace(timestamp=number) if text[0] == "@" else OffsetPlace(offset=number)
    at, sign, time_text = text.partition("@")
    try:
        time = datetime.fromisoformat(time_text.strip() if sign and not at else "")
    except ValueError:
        raise ValueError(
            "a place is newest, earliest, an offset, or @ and a time, as in @2026-01-31T12:00; "
            f"not {text[:60]!r}"
        ) from None
    time_ms = (time.replace(tzinfo=time.tzinfo or UTC) - EPOCH) // timedelta(milliseconds=1)
    return EARLIEST if time_ms < 0 else OffsetPlace(timestamp=time_ms)  # Negative: special values.
