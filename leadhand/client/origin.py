"""The origin of a new session: its Idempotency-Key and, for a child, its policy."""

from __future__ import annotations

import uuid
from typing import Literal, NamedTuple

from leadhand.client.calls import Param

#: What becomes of a child session once what started it has ended.
ParentEnd = Literal["abort", "let-go-on"]

#: The tokens of doers and checkers begin with this; a session that they start is a child.
STEP_TOKEN = "lhc1."  # noqa: S105 - a prefix


class Origin(NamedTuple):
    """The key of a new session, its policy and the caller's token."""

    key: str | None
    on_parent_end: ParentEnd | None
    token: str

    def headers(self) -> dict[str, str]:
        """Return the Idempotency-Key header; without a key, a random one, or {} inside a step."""
        if self.key is None and self.token.startswith(STEP_TOKEN):
            return {}
        return {"Idempotency-Key": self.key or uuid.uuid4().hex}

    def params(self) -> dict[str, Param]:
        """Return the query parameter `on_parent_end` (does a child end with its parent?), or {}."""
        return {} if self.on_parent_end is None else {"on_parent_end": self.on_parent_end}
