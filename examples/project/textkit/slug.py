"""Titles as they stand in addresses."""

from __future__ import annotations


def slugify(title: str) -> str:
    """Promised, not written."""
    raise NotImplementedError
