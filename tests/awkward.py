"""The awkward records: one set for every way in and every way out.

docs/records.md says what each way keeps of them; tests/app/test_awkward_records.py compares, and
tests/spark_jobs/test_awkward_records.py for Spark.
"""

from itertools import pairwise
from typing import NamedTuple

from smq.sealer.years import TIME_MS_MAX, TIME_MS_MIN

Headers = tuple[tuple[bytes, bytes | None], ...]
INT64_MAX = 2**63 - 1
NO_TIME = -(2**63)  # No record has it.
SMALL_BYTES = 100_000  # A limit of a client or of a topic, below the broker's.
# Times are checked against the broker's unless a topic says that it takes any.
ANY_TIME = {
    "message.timestamp.before.max.ms": str(INT64_MAX),
    "message.timestamp.after.max.ms": str(INT64_MAX),
    "retention.ms": "-1",
}


class Awkward(NamedTuple):
    """A record without its place. Where a way out has no time, it is NO_TIME."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: Headers = ()
    time_ms: int = 0

    @property
    def is_text(self) -> bool:
        """Whether key and value are UTF-8."""
        return all(each is None or _is_text(each) for each in self[:2])

    @property
    def has_text_names(self) -> bool:
        """Whether its headers' names are UTF-8."""
        return all(_is_text(name) for name, _ in self.headers)

    @property
    def has_calendar_time(self) -> bool:
        """Whether its time is of the years 1 to 9999."""
        return TIME_MS_MIN <= self.time_ms <= TIME_MS_MAX


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


NOTHING = [
    Awkward(None, None),
    Awkward(b"", None),
    Awkward(None, b""),
    Awkward(b"", b""),
    Awkward(b"null", b"null"),
]
TIMES = [
    *(-INT64_MAX, -(2**62), TIME_MS_MIN - 1, TIME_MS_MIN),
    *(-9_223_372_036_855, -1001, -1000, -999, -2, -1, 0, 1, 999),
    *(1_700_000_000, 1_700_000_000_123, 1_700_000_000_123_456, 1_700_000_000_123_456_789),
    *(9_223_372_036_854, TIME_MS_MAX, TIME_MS_MAX + 1, 2**62, INT64_MAX),
]
HEADERS: list[Headers] = [
    ((b"a", b"1"), (b"a", b"2"), (b"b", b""), (b"a", None), (b"a", b"1")),
    ((b"", b""), (b"", None)),
    ((b"binary", b"\xff\x00\xfe"), (b"n\0ul", b"\0"), (b"\\xff", b"")),
    ((b"a=b,c=d\t\r\n", b"1,2=3\n"), (b' "quoted" ;', b"'")),
    (("käse\u202e".encode(), "\U0001f9c0".encode()), (b"content-type", b"application/x-npy")),
]
ODD_NAMES: list[Headers] = [
    ((b"\xff\xfe", b"1"), (b"\xff\xfe", b"2"), (b"latin-\xe4", b"3")),
    ((b"\xed\xa0\x80", None), (b"plain", b"4")),
]
NUMBERS = [
    *(b"02134", b"00", b"-0", b"+1", b"1_000", b"1,000", b"0x1f", b" 1", b"1 ", b"1.10", b".5"),
    *(b"12345678901234567890", b"-9223372036854775809", b"9007199254740993", b"1e400", b"1E5"),
    *(b"0.1000000000000000055511151231257827", b"NaN", b"nan", b"Infinity", b"-inf", b"True"),
    *("\u0661\u0662".encode(), b"2024-02-30", b"1970-01-01T00:00:00Z"),
]
JSON = [
    b'{"id": 12345678901234567890, "zip": "02134", "price": 1.10, "id": 2}',
    b'{"x": NaN, "y": Infinity}',
    b'{"base64": "/w=="}',
    b'{"value": "v", "key": null}',
    b'"\\ud800"',
    b"[" * 2000,
]
TEXTS = [
    *(b"a,b;c\td", b'"', b'"a", "b"', b"'", b"a\nb", b"a\r\nb", b"\r", b"\n", b"a\n\n", b"\\N"),
    *(b"\\xFF", b"\\u0041", b"=1+1", b" lead", b"trail ", b" ", b"#", b"--help", b"@0"),
    *(b"\0", b"a\0b", b"\x01\x1b[31m\x07\x7f", "\u0085\u2028\u2029".encode()),
    *("\u202eabc".encode(), "\ufeffbom".encode(), "e\u0301".encode(), "\U0001f9c0".encode()),
    *("\ufffd".encode(), b"<b>&amp;{{x}}</b>"),
]
BYTES = [
    *(b"\xff", b"\xff\xfe", b"a\xffb", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"M\xfcnchen"),
    *(bytes(range(256)), b"\x93NUMPY\x01", b"Obj\x01", b"PAR1", b"\xff\xff\xff\xff\0\0"),
]
LARGE = [
    Awkward(b"large", bytes(90_000)),
    Awkward(b"k" * 40_000, bytes(range(256)) * 180),
    Awkward(b"many headers", b"", tuple((b"h%d" % (i % 7), b"%d" % i) for i in range(300))),
]

PLAIN: list[Awkward] = [
    *NOTHING,
    *(Awkward(b"%d" % time, b"time", (), time) for time in TIMES),
    *(Awkward(b"headers", b"", each) for each in HEADERS),
    *(Awkward(each, each) for each in (*NUMBERS, *JSON, *TEXTS, *BYTES)),
    *LARGE,
]
"""Those that a Parquet segment holds."""
ODD = [Awkward(b"names", b"", each) for each in ODD_NAMES]
"""Those that only a raw segment holds."""
RECORDS = [*PLAIN, *ODD]

assert all(one != other for one, other in pairwise(RECORDS))
