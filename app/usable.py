"""Pure: where something that workers tell of can be used, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar


class _Told(Protocol):
    @property
    def why_not(self) -> str | None:
        """Why it cannot be used there; None where it can."""


T = TypeVar("T", bound=_Told)


class Usable(NamedTuple, Generic[T]):
    """One thing, as the workers of several places tell of it."""

    #: As one of those tells who can use it, if there is any.
    first: T
    at: list[str]
    why_not: Mapping[str, str]


def usable(found: Sequence[tuple[str, T]]) -> Usable[T]:
    """What each place said of it, at least one of them."""
    at = sorted({place for place, told in found if told.why_not is None})
    first = next((told for _, told in found if told.why_not is None), found[0][1])
    why_not = {place: told.why_not for place, told in found if place not in at}
    return Usable(
        first, at, {place: why for place, why in sorted(why_not.items()) if why is not None}
    )
