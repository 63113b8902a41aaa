"""Places that an operator types."""

import pytest

from smq.app.front.desk.places import place_of
from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("newest", LATEST),
        ("latest", LATEST),
        ("earliest", EARLIEST),
        ("17", OffsetPlace(offset=17)),
        ("@1700000000000", OffsetPlace(timestamp=1_700_000_000_000)),
        ("@2026-01-31T12:00", OffsetPlace(timestamp=1_769_860_800_000)),
        ("@2026-01-31 12:00", OffsetPlace(timestamp=1_769_860_800_000)),
        ("@2026-01-31T13:00+01:00", OffsetPlace(timestamp=1_769_860_800_000)),
        ("@1950-01-01", EARLIEST),
    ],
)
def test_a_place_is_a_word_an_offset_or_a_time(text: str, place: OffsetPlace) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    "text", ["", "-1", "soon", "@", "@soon", "2026-01-31", "9" * 19 + "9", "a@1"]
)
def test_an_invalid_place_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="a place is newest"):
        place_of(text)
