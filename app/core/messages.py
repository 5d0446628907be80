"""Messages of an inbox as they are stored, and what may be sent (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.errors import InvalidDocument

#: The kinds that Leadhand itself sends; any word of this form is a kind.
HINT, NOTICE, REPORT, PROPOSAL, END = "hint", "notice", "report", "proposal", "end"
_KIND = re.compile(r"[a-z][a-z_]{0,31}")
#: Maximum bytes of a message's text, and of its data as JSON. The Lua functions refuse more too.
BYTES = 16 * 1024


class Message(BaseModel):
    """A stored message."""

    model_config = ConfigDict(frozen=True)

    #: From 1, in the order of arrival; never used twice in a session.
    id: int
    at_ms: int
    kind: str
    #: A child session's id, or the name of a person's token.
    from_: str = Field(alias="from")
    text: str
    data: JsonValue = None
    #: Whether it calls for a person until it is acknowledged.
    escalates: bool = False
    read_ms: int | None = None
    #: The address of the turn that acknowledged it, or the name of another reader.
    read_by: str | None = None


def check_kind(kind: str) -> str:
    """Returns the kind of a message; raises InvalidDocument unless it is one lower-case word."""
    if not _KIND.fullmatch(kind):
        raise InvalidDocument("kind", kind, "give one word of at most 32 small letters")
    return kind


def check_text(text: str, field: str = "text") -> str:
    """Returns the text of a message; raises InvalidDocument if it is blank or too long."""
    if not text.strip():
        raise InvalidDocument(field, text[:20], "it is blank; say what the reader has to know")
    size = len(text.encode())
    if size > BYTES:
        hint = f"it has {size} bytes, more than {BYTES}; write it to a file and name that"
        raise InvalidDocument(field, f"{text[:20]}...", hint)
    return text


def pack_data(data: JsonValue) -> str | None:
    """Serializes the data of a message; None without any. Raises InvalidDocument if too long."""
    if data is None:
        return None
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > BYTES:
        hint = f"it has more than {BYTES} bytes; write it to a file and name that"
        raise InvalidDocument("data", f"{text[:20]}...", hint)
    return text


def append_fields(message: str, fields: Mapping[str, JsonValue]) -> str:
    r"""Appends extra fields to a message as lines of text, because agents read only the text.

    >>> append_fields("done", {"pr_number": 12, "note": None})
    'done\n\npr_number: 12'
    """
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\n\n".join([message, "\n".join(lines)]) if lines else message
