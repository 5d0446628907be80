"""The models that queries and bodies are made of (pure)."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole_number(value: object) -> object:
    """Refuse numbers in a query that are not plain digits."""
    if isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value):
        raise ValueError("it should be a whole number; give a whole number")
    return value


def _day(value: object) -> object:
    """Refuse what pydantic takes for a date too, such as a number of seconds."""
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("it should be a valid date; give a day such as 2026-11-01")
    return value


def _yes_or_no(value: object) -> object:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("it should be true or false; give one of them")
    return value


#: For whole numbers of a query. Limits are before it, or the description does not have them.
DIGITS = BeforeValidator(_whole_number)
Limit = Annotated[int, Field(ge=1, le=500), DIGITS]
Whole = Annotated[int, Field(ge=0, le=999_999_999), DIGITS]
Day = Annotated[date, BeforeValidator(_day)]
YesOrNo = Annotated[bool, BeforeValidator(_yes_or_no)]


#: The forms of an idempotency key, which is printable ASCII, and of the id of an event.
KEY_FORM = r"[\x20-\x7e]{1,200}"
EVENT_ID_FORM = r"[0-9]{1,19}-[0-9]{1,19}"


class Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NoQuery(Query):
    """The query of a route without parameters."""


class PageQuery(Query):
    """The page of a list."""

    #: Maximum number of items.
    limit: Limit = 50
    #: The `next` of the previous page.
    cursor: Annotated[str, Field(min_length=1, max_length=500, pattern="^[!-~]+$")] | None = None


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoBody(Body):
    """The body of a call without parameters: absent, or an empty object."""


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


#: A field that may be left out, and is never null.
WITHOUT_DEFAULT = Field(json_schema_extra=_drop_default)


def not_null(value: object) -> object:
    """Refuses null for a field that may be left out: a point that was not found is no default."""
    if value is None:
        raise ValueError("it is null; leave it out to continue where the session was")
    return value
