"""The files of the dashboard: what templates must not have, and what is vendored."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from api.dashboard import routes

HERE = Path(routes.__file__).parent
TEMPLATES = sorted(HERE.glob("templates/**/*.html"))
VENDOR = HERE / "static" / "vendor"
#: What the content security policy forbids, or lets fail without a word.
FORBIDDEN = {
    "a filter in hx-trigger": re.compile(r'hx-trigger="[^"]*\['),
    "hx-on": re.compile(r"\bhx-on\b"),
    "js:": re.compile(r"""["']\s*(js|javascript):"""),
    "style=": re.compile(r"\sstyle="),
    "an inline script": re.compile(r"<script(?![^>]*\ssrc=)"),
    "an inline style": re.compile(r"<style"),
    "a handler": re.compile(r"\son[a-z]+="),
    "a text that is not escaped": re.compile(r"\|\s*safe\b|autoescape\s+false"),
}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
@pytest.mark.parametrize("what", FORBIDDEN)
def test_template_has_nothing_that_the_policy_forbids(path, what):
    assert not FORBIDDEN[what].search(path.read_text()), f"{path.name} has {what}"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a filter in hx-trigger", '<p hx-trigger="click[ctrlKey]">'),
        ("hx-on", '<p hx-on:click="x()">'),
        ("js:", "<p hx-vals='js:{a: 1}'>"),
        ("style=", '<p style="color: red">'),
        ("an inline script", "<script>x()</script>"),
        ("a handler", '<p onclick="x()">'),
    ],
)
def test_check_finds_what_it_forbids(what, text):
    assert FORBIDDEN[what].search(text)


def test_vendored_files_are_as_their_checksums():
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}
    assert found == set(sums)
    for name, expected in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected
    assert [name for name in found if name.startswith("LICENSE")]


def test_script_and_style_stay_small():
    assert (HERE / "static/app.js").read_text().count("\n") < 300
    assert (HERE / "static/app.css").read_text().count("\n") < 420
