"""How a session of the chaos runs must end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class End:
    """How a session ends when nobody steers it and no step is poison."""

    status: str = "completed"
    code: str = "done"
    #: As counted of the whole session; None where it is not foretold.
    iterations: int | None = None
    phase_retries: int = 0
