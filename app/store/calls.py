"""The arguments of one call of a transition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue


class Call(NamedTuple):
    """Arguments of a transition."""

    arguments: Mapping[str, JsonValue]
    outcome: str = ""
    ledger: str = ""
    transcript: Sequence[str] = ()
