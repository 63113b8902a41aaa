"""docs/ builds as one site in which every link and anchor leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# Not --quiet: it also keeps the warnings from --strict.
BUILD = [sys.executable, "-m", "mkdocs", "build", "--strict"]


def build(configuration: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*BUILD, "--config-file", str(configuration), "--site-dir", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (tmp_path / "site" / str(name).replace("README", "index")).exists(), page


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "index.md#nothing", "../README.md"])
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[there]({link})\n")
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(settings + "\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert f"contains a link '{link}'" in done.stderr
