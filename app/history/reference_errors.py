"""Errors of references to results."""

from __future__ import annotations

from app.errors import ReferenceUnresolved


class ValueMissing(ReferenceUnresolved):
    """A `${reference}` names a value that is not there."""

    def __init__(self, reference: str, address: str, why: str) -> None:
        super().__init__(reference, address)
        self.args = (reference, address, why)
        self.why = why

    def __str__(self) -> str:
        return f"{self.reference} has no value: {self.why}"
