"""The result of one check of `leadhand doctor`."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """The result of one check."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str
    mend: str = ""
