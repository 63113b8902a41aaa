"""docs/rights.md has a row for each API."""

import re
from pathlib import Path

from gateway.apis.table import APIS

PAGE = Path("docs/rights.md").read_text()


def test_every_api_has_a_row_that_says_which_right_it_needs() -> None:
    cells = re.findall(r"(?m)^\| ([A-Z][^|]+) \|", PAGE)
    named = {name.split(" ")[0] for cell in cells[1:] for name in cell.split(", ")}
    assert named == {api.name for api in APIS}
