"""The client's settings from environment variables; no other module of leadhand/ reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leadhand.errors import SettingInvalid
from leadhand.models.patterns import NAME


class ClientSettings(BaseModel):
    """The address of the API and, inside a doer or checker, its session and step."""

    model_config = ConfigDict(frozen=True)

    #: The API's URL; by default the user's embedded stack is used.
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+")
    token: str | None = None
    #: The token of a body that outlives its attempt: it reports, and reads its session's inbox.
    session_token: str | None = None
    #: The session, step and iteration of the calling doer or checker.
    session: str | None = None
    step: str | None = None
    iteration: int | None = Field(default=None, ge=1)
    #: The state folder of the embedded services; by default this user's on this machine.
    home: Path | None = None
    #: The name of this host in the names of stacks; by default the host's own name.
    place: str | None = Field(default=None, pattern=NAME)
    #: The Redis that the embedded stack uses instead of its own.
    redis_url: str | None = None
    #: The limits of Stop guards: of all failing stops, of each gate, and of a silent hook (s).
    guard_global_max: int | None = Field(default=None, ge=1, le=100_000)
    guard_stage_max: int | None = Field(default=None, ge=1, le=1000)
    guard_stale_timeout: float | None = Field(default=None, ge=60, le=24 * 3600)

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> ClientSettings:
        """Read the client's settings from the environment. Raises SettingInvalid."""
        env = os.environ if env is None else env
        given = {field: env[name] for field, name in _NAMES.items() if env.get(name)}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = _NAMES[str(first["loc"][0])]
            raise SettingInvalid(name, env[name], _HINTS.get(name, first["msg"])) from None


def use_home(folder: Path) -> None:
    """Sets the state folder for this process and its children, like LEADHAND_HOME."""
    os.environ["LEADHAND_HOME"] = str(folder.absolute())


def current_folder() -> Path | None:
    """Returns the current folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def environment() -> dict[str, str]:
    """Returns a copy of the environment, for child processes."""
    return dict(os.environ)


_NAMES = {
    "url": "LEADHAND_URL",
    "token": "LEADHAND_TOKEN",
    "session_token": "LEADHAND_SESSION_TOKEN",
    "session": "LEADHAND_SESSION",
    "step": "LEADHAND_STEP",
    "iteration": "LEADHAND_ITERATION",
    "home": "LEADHAND_HOME",
    "place": "LEADHAND_PLACE",
    "redis_url": "LEADHAND_REDIS_URL",
    "guard_global_max": "LEADHAND_GUARD_GLOBAL_MAX",
    "guard_stage_max": "LEADHAND_GUARD_STAGE_MAX",
    "guard_stale_timeout": "LEADHAND_GUARD_STALE_TIMEOUT",
}
_HINTS = {
    "LEADHAND_URL": "give a URL such as http://127.0.0.1:8765",
    "LEADHAND_GUARD_GLOBAL_MAX": "give a whole number, at least 1",
    "LEADHAND_GUARD_STAGE_MAX": "give a whole number, at least 1",
    "LEADHAND_GUARD_STALE_TIMEOUT": "give seconds, at least 60",
}
