"""Artifacts: results and outputs of a step that are stored by their digest instead of in Redis."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.core.addresses import SessionRef

#: A result of more bytes of JSON is stored as an artifact.
INLINE_BYTES = 64 * 1024
#: An artifact without a reference is kept at least so long: its attempt may not have settled yet.
YOUNG_S = 24 * 3600.0
#: The artifact that is the value of a step, and the one that is the `result` in the value of a step
#: that called a flow; its other artifacts are outputs of programs.
VALUE: Literal["value"] = "value"
RESULT: Literal["result"] = "result"
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


class Artifact(BaseModel):
    """A reference to an artifact in the outcome of a step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["value", "result", "stdout", "stderr"]
    #: SHA-256 of its bytes, in hexadecimal.
    digest: Annotated[str, Field(pattern=_DIGEST.pattern)]
    size: Annotated[int, Field(ge=0)]
    media_type: str


class ArtifactSource(Protocol):
    """Reads artifacts of a session."""

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """Return all bytes of an artifact of this size. Raises ArtifactUnknown, StoreAway."""


def is_digest(text: str) -> bool:
    """Whether a text has the form of a SHA-256 digest: 64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


def value_artifact(outcome: Mapping[str, JsonValue]) -> tuple[str, int] | None:
    """Returns digest and size of an outcome's value stored as an artifact; None if it is inline.

    >>> value_artifact({"word": "succeeded", "value": 7}) is None
    True
    """
    return _listed(outcome, VALUE)


def result_artifact(outcome: Mapping[str, JsonValue]) -> tuple[str, int] | None:
    """Returns digest and size of the artifact that is an outcome's `result`; None without one."""
    return _listed(outcome, RESULT)


def _listed(outcome: Mapping[str, JsonValue], name: str) -> tuple[str, int] | None:
    listed = outcome.get("artifacts")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("name") == name:
            return str(one["digest"]), int(str(one["size"]))
    return None


def marker(digest: str, size: int) -> dict[str, JsonValue]:
    """Returns the JSON shown in place of a value stored as an artifact: its digest and size."""
    return {"artifact": digest, "bytes": size}
