"""What the client's side is told by its environment: the only place in leadhand/ that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leadhand.errors import SettingInvalid


class ClientSettings(BaseModel):
    """Where the API is, and, inside a body, whose body it is."""

    model_config = ConfigDict(frozen=True)

    #: Where the API is; the embedded stack of the current folder unless given.
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+")
    token: str | None = None
    #: The session, step and iteration that the calling body works for.
    session: str | None = None
    step: str | None = None
    iteration: int | None = Field(default=None, ge=1)
    #: Whose `.leadhand/` is used in place of the current folder's.
    home: Path | None = None
    #: The Redis that the embedded stack uses in place of one of its own.
    redis_url: str | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> ClientSettings:
        """Read the environment. Raises SettingInvalid naming the variable, its value and why."""
        env = os.environ if env is None else env
        given = {field: env[name] for field, name in _NAMES.items() if env.get(name)}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = _NAMES[str(first["loc"][0])]
            raise SettingInvalid(name, env[name], _HINTS.get(name, first["msg"])) from None


def environment() -> dict[str, str]:
    """A copy of the environment, for child processes to start from."""
    return dict(os.environ)


_NAMES = {
    "url": "LEADHAND_URL",
    "token": "LEADHAND_TOKEN",
    "session": "LEADHAND_SESSION",
    "step": "LEADHAND_STEP",
    "iteration": "LEADHAND_ITERATION",
    "home": "LEADHAND_HOME",
    "redis_url": "LEADHAND_REDIS_URL",
}
_HINTS = {"LEADHAND_URL": "give an address such as http://127.0.0.1:8765"}
