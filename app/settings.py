"""Settings of the server processes, read from LEADHAND_ environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from app.redis_url import SCHEMES, normalize
from leadhand.errors import SettingInvalid
from leadhand.models.documents import Budget
from leadhand.models.session_environment import (
    ServerVariables,
    about,
    given,
    invalid,
    misspelt,
    variable,
)


class Settings(ServerVariables):
    """All settings of a server process; the defaults suit a single machine."""

    #: The user's home folder, whose files are not those of a folder.
    user_home: Path | None = None
    #: Where programs are found.
    search_path: str = ""
    #: Where the user's state is, if no variable names a folder for it.
    state_home: Path = Path("~/.local/state")

    @property
    def worktrees_root(self) -> Path:
        """Return the folder of all worktrees and copies."""
        return self.worktrees or (self.state_dir or self.state_home / "leadhand") / "worktrees"

    @property
    def artifacts_root(self) -> Path:
        """Return the folder of all artifacts."""
        return self.artifacts or (self.state_dir or self.state_home / "leadhand") / "artifacts"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secrets whose signatures are accepted; this process signs with the first."""
        return tuple(filter(None, (self.secret, self.secret_other)))

    @property
    def lease_ms(self) -> int:
        """Return the lease of an attempt in milliseconds."""
        return round(self.lease_s * 1000)

    @property
    def retentions(self) -> dict[str, str]:
        """Return the retention settings as fields of a new session."""
        names = [name for name in ServerVariables.model_fields if name.startswith("retention_")]
        times = {name: getattr(self, name) for name in names}
        return {name.removesuffix("_s"): str(s) for name, s in times.items() if s is not None}

    @property
    def budget(self) -> Budget:
        """Return the default budget of a session."""
        names = Budget.model_fields
        return Budget(**{name: getattr(self, f"budget_{name}") for name in names})

    @property
    def tree_limits(self) -> dict[str, int]:
        """Return the limits of a tree of sessions, by name."""
        return {
            "depth": self.tree_depth,
            "children": self.tree_children,
            "sessions": self.tree_sessions,
        }

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables. Raises SettingInvalid if one is bad."""
        env = os.environ if env is None else env
        values = given(ServerVariables, env)
        if env.get("HOME"):
            values["user_home"] = env["HOME"]
        values["search_path"] = env.get("PATH", "")
        values["state_home"] = _state_home(env, needed="state_dir" not in values)
        values |= _redis_urls(values)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingInvalid(*invalid(error, cls)) from None


def doubts(settings: Settings, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields a warning for each suspicious setting: a misspelt name, a short secret."""
    yield from misspelt(os.environ if env is None else env)
    for name, field in ServerVariables.model_fields.items():
        length, least = len(str(getattr(settings, name))), about(field).least
        if 0 < length < least:
            fix = f"use at least {least}, such as the output of `openssl rand -hex 32`"
            yield f"{variable(name)} has {length} characters and can be guessed; {fix}"


def _state_home(env: Mapping[str, str], *, needed: bool) -> Path:
    """XDG_STATE_HOME, or ~/.local/state. Raises SettingInvalid for a user without a home folder."""
    named = env.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - see
    if named.startswith("~") and needed:  # what expanduser leaves as it is
        hint = "this user has no home folder; name a folder that only this user can write to"
        raise SettingInvalid("LEADHAND_STATE_DIR", "", hint)
    return Path(named)


def _redis_urls(values: Mapping[str, object]) -> dict[str, str]:
    """The URLs of Redis and of the broker, normalized. Raises SettingInvalid."""
    url = str(values.get("redis_url", ""))
    _check_redis_url(url)
    found = {"redis_url": normalize(url, "LEADHAND_REDIS_URL")}
    broker = values.get("broker_url")
    found["broker_url"] = (
        found["redis_url"] if broker is None else normalize(str(broker), "LEADHAND_BROKER_URL")
    )
    return found


def _check_redis_url(url: str) -> None:
    """Raises SettingInvalid for a malformed Redis URL, without repeating its password."""
    scheme, found, rest = url.partition("://")
    if url and (scheme not in SCHEMES or not found or not rest):
        hint = "give redis://HOST:6379/0, rediss://HOST:6379/0 or unix:///PATH/redis.sock?db=0"
        raise SettingInvalid("LEADHAND_REDIS_URL", f"{scheme}://..." if found else "...", hint)
    if scheme == "unix" and not urlsplit(url).path:
        hint = "name the path of the socket: unix:///PATH/redis.sock?db=0"
        raise SettingInvalid("LEADHAND_REDIS_URL", "unix://...", hint)
