"""Parses options that name a place in a topic: a word, an offset, or a time."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from smq.cli.client import refusal
from smq.model.offset_types import OffsetType, WantedPlace
from smq.model.setting import INT64_MAX

if TYPE_CHECKING:
    from smq.client.kafka.offsets import OffsetPlace

PLACES = (
    "earliest, latest, an offset, @ and a time (milliseconds since 1970, or ISO 8601), "
    "or an offset type such as exact-offset:7"
)
OFFSET_TYPES = {each.name.lower().replace("_", "-"): each for each in OffsetType}
WITH_NUMBER = {OffsetType.EXACT_OFFSET, OffsetType.EXACT_TS_NS, OffsetType.RESET_TO_OFFSET}
EPOCH = datetime.fromtimestamp(0, UTC)


def place(text: str, option: str) -> "OffsetPlace":
    """Parse an option's place in the log."""
    from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace  # noqa: PLC0415  (takes its time)

    if text in {"earliest", "latest"}:
        return EARLIEST if text == "earliest" else LATEST
    type_, _, digits = text.partition(":")
    if type_ in OFFSET_TYPES and re.fullmatch(r"[0-9]*", digits):
        return _by_type(OFFSET_TYPES[type_], digits, option)
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


def _by_type(kind: OffsetType, digits: str, option: str) -> "OffsetPlace":
    from smq.client.kafka.offsets import place_of_wanted  # noqa: PLC0415  (takes its time)

    if bool(digits) != (kind in WITH_NUMBER):
        raise refusal(
            f"{option} takes exact-offset:7, exact-ts-ns:7, reset-to-offset:7; "
            "the other offset types have no number"
        )
    number = _bounded(digits or "0", option)
    return place_of_wanted(WantedPlace(kind, number, number))


def _bounded(digits: str, option: str) -> int:
    if len(digits) > len(str(INT64_MAX)) or int(digits) > INT64_MAX:
        raise refusal(f"{option} takes offsets and times up to {INT64_MAX}")
    return int(digits)
