"""The registry of APIs."""

import subprocess
import sys

from smq.wire.api import WireApi
from smq.wire.generated.apis import API_BY_KEY, API_BY_NAME


def test_an_api_is_found_by_its_key_and_by_its_name() -> None:
    assert API_BY_KEY[1] == WireApi(1, "Fetch", 4, 18, 12, "fetch")
    assert API_BY_NAME["Fetch"] is API_BY_KEY[1]
    assert all(facts.key == key for key, facts in API_BY_KEY.items())


def test_the_versions_are_those_of_kafka_4_3() -> None:
    ranges = {facts.key: (facts.first_version, facts.last_version) for facts in API_BY_KEY.values()}
    assert ranges == {
        0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
        11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
        18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
        25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3),
        31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3),
        42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0),
        48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
        57: (0, 2), 60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2),
        71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0),
    }  # fmt: skip


def test_a_codec_is_loaded_when_it_is_first_used() -> None:
    code = (
        "import sys; from smq.wire.generated import apis; name = 'smq.wire.generated.fetch'; "
        "assert name not in sys.modules; apis.FETCH.read_response; assert name in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
