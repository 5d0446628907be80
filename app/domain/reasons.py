"""Reasons for the end of a step, loop or session: a code, a text and the underlying reason."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from leadhand.models.reasons import ReasonCode as ReasonCode
from leadhand.models.views.view import Reason as ReasonView


class Reason(BaseModel):
    """One link of the chain of causes that leads to the root cause."""

    model_config = ConfigDict(frozen=True)

    code: ReasonCode
    text: str = ""
    #: The address of the step or loop that this reason is about.
    at: str | None = None
    beneath: Reason | None = None

    def chain(self) -> Iterator[Reason]:
        """Yields this reason and its causes, the root cause last."""
        link: Reason | None = self
        while link is not None:
            yield link
            link = link.beneath

    @property
    def root(self) -> Reason:
        """The last reason in this reason's chain of causes: the root cause."""
        *_, last = self.chain()
        return last


def reason_view(reason: Reason | None) -> ReasonView | None:
    """Converts a reason and its causes to the model that the API sends; None for None."""
    if reason is None:
        return None
    return ReasonView(
        code=reason.code.value,
        text=reason.text,
        at=reason.at,
        beneath=reason_view(reason.beneath),
    )
