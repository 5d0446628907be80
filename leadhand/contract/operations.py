"""All operations of the API."""

from __future__ import annotations

from typing import Any

from leadhand.contract import (
    fleet,
    flows,
    folders,
    guards,
    messages,
    plans,
    sessions,
    shared,
    stacks,
    submissions,
    tokens,
    work,
)
from leadhand.contract.operation import Operation

NOUNS = (
    submissions, sessions, messages, plans, folders, shared, stacks, work, work, guards, flows,
    fleet, tokens,
)  # fmt: skip

#: By name.
OPERATIONS: dict[str, Operation[Any]] = {
    one.name: one for noun in NOUNS for one in vars(noun).values() if isinstance(one, Operation)
}
