"""A doer without a model: reads the task and the feedback from its prompt, and edits real files.

It works as a hasty person does: it writes what the task says at first sight, and mends what the
feedback names. Any program that reads a prompt and edits files can stand in its place.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path("tests/test_slug.py")
CODE = Path("textkit/slug.py")

TEST_FILE = """\
from __future__ import annotations

from textkit.slug import slugify


def test_words_are_joined_by_hyphens() -> None:
    assert slugify("Two Words") == "two-words"


def test_punctuation_is_left_out() -> None:
    assert slugify("Ready, steady: go!") == "ready-steady-go"


def test_blanks_at_the_ends_are_left_out() -> None:
    assert slugify("  wide   open  ") == "wide-open"


def test_accents_are_left_out() -> None:
    assert slugify("Crème brûlée") == "creme-brulee"
"""

HEAD = '''\
"""Titles as they stand in addresses."""

from __future__ import annotations

'''
HASTY = """

def slugify(title: str) -> str:
    return title.lower().replace(" ", "-")
"""
BY_WORDS = """import re


def slugify(title: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))
"""
WHOLE = """import re
import unicodedata


def slugify(title: str) -> str:
    letters = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return "-".join(re.findall(r"[a-z0-9]+", letters.lower()))
"""
CLEAR = """import re
import unicodedata

_WORD = re.compile(r"[a-z0-9]+")


def slugify(title: str) -> str:
    return "-".join(_WORD.findall(_without_accents(title).lower()))


def _without_accents(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
"""
DOCSTRINGS = {
    "def slugify(title: str) -> str:": "The title in lower case, its words joined by hyphens.",
    "def _without_accents(text: str) -> str:": "The text with each letter in its plain form.",
}


def write_tests(prompt: str) -> str:
    """Write failing tests for a function that does not exist yet."""
    first = TEST_FILE.partition("\n\n\ndef test_blanks")[0] + "\n"
    if "too few" in prompt:
        TESTS.write_text(TEST_FILE)
        return "I added tests for blanks and accents; now there are enough of them."
    TESTS.write_text(first)
    return "I wrote two tests: one for plain words, one for punctuation."


def make_them_pass(prompt: str) -> str:
    """Write a first implementation, and on feedback one that passes the failing tests."""
    if "test_accents" in prompt:
        CODE.write_text(HEAD + WHOLE)
        return "The tests named accents, so I take the letters apart before I look for words."
    if "test_punctuation" in prompt or "test_blanks" in prompt:
        CODE.write_text(HEAD + BY_WORDS)
        return "The tests named punctuation, so I join the words that I find."
    CODE.write_text(HEAD + HASTY)
    return "I turned blanks into hyphens; that should do."


def refactor(prompt: str) -> str:
    """Shorten lines, and add docstrings once the checker asks for them."""
    text = HEAD + CLEAR
    if "no docstring" in prompt:
        for line, docstring in DOCSTRINGS.items():
            text = text.replace(line, f'{line}\n    """{docstring}"""')
    CODE.write_text(text)
    return "I gave the steps names" + (" and docstrings." if "no docstring" in prompt else ".")


#: A phrase of each task, and the function that does it.
TASKS: dict[str, Callable[[str], str]] = {
    "Write failing tests": write_tests,
    "Make the tests": make_them_pass,
    "Refactor": refactor,
}


def main(pause_s: str = "0") -> int:
    """Do the task in the prompt on standard input."""
    prompt = sys.stdin.read()
    time.sleep(float(pause_s))  # Long enough to watch, and to kill it in the middle.
    for opening, work in TASKS.items():
        if opening in prompt:
            print(work(prompt))
            return 0
    print("I know only these tasks: " + ", ".join(TASKS), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
