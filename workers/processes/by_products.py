"""Names of what tools leave in a working folder: it is no work, unless git tracks it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath

#: Patterns of files and folders, wherever they are.
BY_PRODUCTS = (
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", ".env",
    "*.pyc", "htmlcov", ".coverage",
)  # fmt: skip


def is_by_product(path: str) -> bool:
    """Whether a path names a by-product, or something in one.

    >>> is_by_product("src/__pycache__/a.txt"), is_by_product("src/a.py")
    (True, False)
    """
    parts = PurePosixPath(path).parts
    return any(fnmatchcase(part, pattern) for part in parts for pattern in BY_PRODUCTS)
