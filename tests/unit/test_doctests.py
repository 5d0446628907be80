"""The examples in the docstrings of the product, and of what the tests share."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)


def modules_with_examples() -> list[str]:
    """Names of modules; only these are imported, as most test processes need few of them."""
    packages = ("app", "tasks", "workers", "api", "leadhand", "tests")
    files = (file for package in packages for file in sorted((ROOT / package).rglob("*.py")))
    paths = [file.relative_to(ROOT) for file in files if _EXAMPLE.search(file.read_text())]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_are_true(name: str) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testmod(import_module(name), optionflags=options)
    assert tried
    assert not failed
