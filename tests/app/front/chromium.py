"""A browser for tests that look at pages; they are skipped without one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PROGRAM = shutil.which("chromium")
IN_A_BROWSER = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAM is None, reason="apt-get install chromium"),
]


@contextmanager
def chromium_running() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (an extra)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield browser
        browser.close()
