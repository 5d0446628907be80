"""The error of an environment that cannot be read."""

from __future__ import annotations

from app.errors import SpecForeign


class EnvironmentSealed(SpecForeign):
    """The environment of a session was changed, or another LEADHAND_SECRET encrypted it."""

    def __init__(self, session: str) -> None:
        SpecForeign.__init__(self, session, "its environment cannot be read; submit --env again")

    def __reduce__(self) -> tuple[type[EnvironmentSealed], tuple[object, ...]]:
        return (type(self), (self.session,))
