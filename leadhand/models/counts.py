"""Counts of the tests that a check ran."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_Number = Annotated[int, Field(ge=0, le=10**9)]


class Counts(BaseModel):
    """How many tests a check ran, and how they ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    passed: _Number = 0
    failed: _Number = 0
    skipped: _Number = 0
    #: All that were found: with those of a plan that did not run.
    collected: _Number = 0

    @property
    def text(self) -> str:
        """Return the counts for people, without those that are 0.

        >>> Counts(passed=12, skipped=3, collected=15).text, Counts().text
        ('12 passed, 3 skipped', 'no tests')
        """
        each = (("failed", self.failed), ("passed", self.passed), ("skipped", self.skipped))
        return ", ".join(f"{count} {word}" for word, count in each if count) or "no tests"


def counts_text(value: object) -> str:
    """Returns the text of counts in a view's JSON; '' for null and for anything else.

    >>> counts_text({"passed": 2, "failed": 1}), counts_text(None)
    ('1 failed, 2 passed', '')
    """
    try:
        return Counts.model_validate(value).text if isinstance(value, dict) else ""
    except ValidationError:
        return ""
