"""A row of a comparison."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A fact of both sides."""

    label: str
    left: str
    right: str
    #: The page that compares it more closely; empty if there is none.
    url: str = ""

    @property
    def differs(self) -> bool:
        """Whether the two values that the row compares are different."""
        return self.left != self.right
