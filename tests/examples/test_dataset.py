"""Rows of the demo's files as JSON values."""

import json
from pathlib import Path

from examples.demo.dataset import encode, rows


def test_numbers_are_numbers_and_na_is_null(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text(
        "carrier,flight,dep_delay,precip,tailnum\nUA,1545,NA,0.01,N14228\nAA,7,-2,,NA\n"
    )
    first, second = rows(file)
    assert first == {
        "carrier": "UA",
        "flight": 1545,
        "dep_delay": None,
        "precip": 0.01,
        "tailnum": "N14228",
    }
    assert json.loads(encode(second)) == {
        "carrier": "AA",
        "flight": 7,
        "dep_delay": -2,
        "precip": None,
        "tailnum": None,
    }
