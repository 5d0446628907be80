"""The base of all views: constructing one refuses unknown fields, parsing one ignores them."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.config import ExtraValues

T = TypeVar("T")


def _allow_more(schema: dict[str, Any]) -> None:
    """Allow unknown fields in the published schema: a newer server may send more."""
    schema.pop("additionalProperties", None)


class View(BaseModel):
    """Part of an API response, shared by the server that sends it and the client that reads it.

    The server constructs a view field by field: an undeclared field is an error. Parsed data may
    come from another version of Leadhand: parsing ignores undeclared fields, nested ones too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_allow_more)

    @classmethod
    def model_validate(cls, obj: Any, *, extra: ExtraValues | None = "ignore", **more: Any) -> Self:
        """Validate `obj`; ignores undeclared fields unless `extra` says otherwise."""
        return super().model_validate(obj, extra=extra, **more)

    @classmethod
    def model_validate_json(
        cls,
        json_data: str | bytes | bytearray,
        *,
        extra: ExtraValues | None = "ignore",
        **more: Any,
    ) -> Self:
        """Parse JSON; ignores undeclared fields unless `extra` says otherwise."""
        return super().model_validate_json(json_data, extra=extra, **more)


class Page(View, Generic[T]):
    """One page of a list, and the cursor of the next."""

    items: list[T]
    next: str | None = None
    #: Whether only a part of the list was examined, so that the page may lack items that match;
    #: `next` continues.
    partial: bool = False
    #: How many entries of the list were examined for this page, those that match included; null
    #: if the list does not count them.
    examined: int | None = None
    #: Sessions that are left out because one of their keys in Redis has a wrong type: `leadhand
    #: fsck` names it.
    damaged: list[str] = []
