"""The templates and the files beside them."""

import re
from importlib.resources import files

from smq.front.console.templates import STATIC, static_routes
from tests.front.console.fake_desk import Browser

FOLDER = files("smq.front.console")


def test_pages_refer_to_our_own_files_only_and_have_no_script_or_style_inline() -> None:
    for template in (FOLDER / "templates").iterdir():
        text = template.read_text()
        assert not re.search(r"https?://|<style|\sstyle=|\son[a-z]+=|<script(?! src=)", text), (
            template
        )
        for name in re.findall(r"{{ static }}/([\w.]+)", text):
            assert (FOLDER / "static" / name).is_file()


def test_no_template_leaves_out_the_escaping() -> None:
    for template in (FOLDER / "templates").iterdir():
        assert not re.search(r"\|\s*safe|autoescape", template.read_text()), template


def test_each_foreign_file_has_its_licence_beside_it() -> None:
    names = {route.path.removeprefix(f"{STATIC}/") for route in static_routes()}
    assert {"htmx.LICENSE", "uPlot.LICENSE", "htmx.min.js", "uPlot.iife.min.js"} <= names
    foreign = {name.partition(".")[0] for name in names} - {"console", "icon"}
    assert foreign == {"htmx", "uPlot"}


def test_files_are_served_with_their_types() -> None:
    browser = Browser()
    script = browser.get(f"{STATIC}/console.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert b"localStorage" in script.body
    assert browser.get(f"{STATIC}/../templates/base.html").status == 404
