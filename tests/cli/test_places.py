"""Places that options name."""

import pytest

from smq.cli.places import place
from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("17", OffsetPlace(offset=17)),
        ("@17", OffsetPlace(timestamp=17)),
        ("@1970-01-02", OffsetPlace(timestamp=86_400_000)),
        ("@1970-01-02T00:00:01+00:00", OffsetPlace(timestamp=86_401_000)),
        ("@2023-11-14T22:13:20.123", OffsetPlace(timestamp=1_700_000_000_123)),
        ("@1969-12-31T23:59:59.999", EARLIEST),
        ("@0001-01-01", EARLIEST),
        (str(2**63 - 1), OffsetPlace(offset=2**63 - 1)),
        ("resume-or-latest", LATEST),
        ("reset-to-earliest", EARLIEST),
        ("exact-offset:17", OffsetPlace(offset=17)),
        ("reset-to-offset:17", OffsetPlace(offset=17)),
        ("exact-ts-ns:17000001", OffsetPlace(timestamp=18)),
    ],
)
def test_a_place_is_said_in_words_numbers_and_times(text: str, meant: OffsetPlace) -> None:
    assert place(text, "--from") == meant


@pytest.mark.parametrize("text", ["", "first", "-1", "@", "@yesterday", "1970-01-02", "x@1"])
def test_an_invalid_place_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="smq: --until takes earliest"):
        place(text, "--until")


@pytest.mark.parametrize("text", ["exact-offset", "exact-offset:", "reset-to-latest:1"])
def test_an_offset_type_with_too_much_or_too_little_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="smq: --from takes exact-offset:7"):
        place(text, "--from")


@pytest.mark.parametrize("number", [str(2**63), "9" * 23, "9" * 5000])
def test_numbers_above_all_offsets_and_times_are_refused(number: str) -> None:
    for text in (number, f"@{number}"):
        with pytest.raises(SystemExit, match=f"smq: --from takes .* up to {2**63 - 1}"):
            place(text, "--from")
