"""Errors of answers to questions."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import LeadhandError
from leadhand.models.form_answers import Unfit
from leadhand.models.problems import Kind


class AnswerUnfit(LeadhandError):
    """An answer does not fit what the question accepts; the step keeps waiting."""

    kind = Kind.INVALID

    def __init__(self, session: str, address: str, unfit: Sequence[Unfit]) -> None:
        super().__init__(session, address, unfit)
        self.session = session
        self.address = address
        self.unfit = tuple(unfit)

    def __str__(self) -> str:
        parts = "; ".join(f"{one.field}: {one.message}, {one.hint}" for one in self.unfit)
        return (
            f"the answer to step {self.address!r} of session {self.session!r} does not fit: {parts}"
        )
