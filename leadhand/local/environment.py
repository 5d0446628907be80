"""Builds the environment of the embedded API and worker, with the settings of config.toml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from leadhand.errors import SettingInvalid
from leadhand.local.processes import only_ours
from leadhand.local.user_state import approvals_file, home_of, worktrees_folder
from leadhand.models.folder_settings import TomlUnreadable, read_toml
from leadhand.models.session_environment import (
    GIVEN,
    PREFIX,
    ClientVariables,
    ServerVariables,
    given,
    invalid,
    names_of,
    variable,
)
from leadhand.models.suggestions import nearest

#: Variables that refer to another stack or session, or that the supervisor sets.
_FOREIGN = {
    *(names_of(ClientVariables) - names_of(ServerVariables)),
    *names_of(ServerVariables, by_supervisor=True),
    *GIVEN,
}
#: Prefixes of variables that would change how the servers run, but are meant for other programs.
_MEANT_FOR_OTHERS = ("CELERY_", "FLASK_", "FLOWER_", "GUNICORN_", "WEB_CONCURRENCY")
#: What a folder may define.
_DEFINED = ("agents", "flows", "tools")
#: The settings of the services that users set; the Redis names the set of services.
SETTABLE = {*names_of(ServerVariables, by_supervisor=False), variable("linger")} - {
    variable("redis_url")
}


class Stack(NamedTuple):
    """The settings of one state folder's stack, fixed while its supervisor runs."""

    home: Path
    redis_url: str
    broker_url: str
    secret: str
    api_token: str
    api_port: int
    supervisor_pid: int
    agents_files: tuple[Path, ...] = ()
    #: Whether the Redis is this folder's own, used by no other stack.
    own_redis: bool = False

    @property
    def api_url(self) -> str:
        """Return the URL of the embedded API."""
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def worker_name(self) -> str:
        """Return the worker's name, which differs per start."""
        return f"embedded-{self.supervisor_pid}"


def service_environment(stack: Stack, base: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of the embedded services: the caller's with their settings."""
    kept = {
        name: value
        for name, value in only_ours(base).items()
        if name not in _FOREIGN and not name.startswith(_MEANT_FOR_OTHERS)
    }
    agents = ":".join(map(str, stack.agents_files))
    ours = {
        # Agents wait for their models most of the time: more of them than cores may work.
        "LEADHAND_CONCURRENCY": base.get("LEADHAND_CONCURRENCY") or "16",
        "LEADHAND_IDLE_PROCESSES": base.get("LEADHAND_IDLE_PROCESSES") or "4",
        "LEADHAND_REDIS_URL": stack.redis_url,
        "LEADHAND_BROKER_URL": stack.broker_url,
        "LEADHAND_SECRET": stack.secret,
        "LEADHAND_API_TOKEN": stack.api_token,
        "LEADHAND_API_BIND": f"127.0.0.1:{stack.api_port}",
        "LEADHAND_API_URL": stack.api_url,
        "LEADHAND_PLACE": base.get("LEADHAND_PLACE") or "local",
        "LEADHAND_STATE_DIR": str(stack.home),
        "LEADHAND_SPILL": str(stack.home / "spill"),
        "LEADHAND_ARTIFACTS": str(stack.home / "artifacts"),
        # In the user's own folder, whichever state folder LEADHAND_HOME names: work is in them.
        "LEADHAND_WORKTREES": base.get("LEADHAND_WORKTREES") or str(worktrees_folder(base)),
        "LEADHAND_AGENTS": base.get("LEADHAND_AGENTS") or agents,
        # What the user names replaces what folders define.
        "LEADHAND_FOLDER_DEFINITIONS": ",".join(n for n in _DEFINED if not base.get(variable(n))),
        "LEADHAND_APPROVALS": str(approvals_file(base)),
        "LEADHAND_WORKER_NAME": stack.worker_name,
        "LEADHAND_SUPERVISOR_PID": str(stack.supervisor_pid),
    }
    return kept | ours | ({"LEADHAND_OWN_REDIS": "1"} if stack.own_redis else {})


def broker_of(redis_url: str) -> str:
    """Converts the URL of the embedded Redis to that of its database 1, which the broker uses.

    >>> broker_of("redis://:secret@127.0.0.1:7000/0")
    'redis://:secret@127.0.0.1:7000/1'
    """
    return redis_url.removesuffix("/0") + "/1"


def config_file(env: Mapping[str, str]) -> Path | None:
    """The path of the user's config.toml, which may not exist; None without a home folder."""
    named = Path(env.get("XDG_CONFIG_HOME") or "")
    if named.is_absolute():
        return named / "leadhand" / "config.toml"
    home = home_of(env)
    return None if home is None else home / ".config" / "leadhand" / "config.toml"


def with_config(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the settings of config.toml that it does not set itself.

    Raises SettingInvalid for a file that cannot be read, and for a setting that does not exist.
    """
    return {**_read(config_file(env)), **{name: text for name, text in env.items() if text}}


def require_valid(env: Mapping[str, str]) -> None:
    """Raises SettingInvalid for a setting of the services that has no valid value."""
    wanted = {name: text for name, text in env.items() if name in SETTABLE}
    if not wanted:
        return  # most commands have none, and need not build the model
    try:
        ServerVariables.model_validate(given(ServerVariables, wanted))
    except ValidationError as error:
        raise SettingInvalid(*invalid(error, ServerVariables)) from None


def digests(env: Mapping[str, str]) -> dict[str, str]:
    """A digest of each service setting in an environment, by the name of its variable."""
    return {
        name: hashlib.sha256(text.encode()).hexdigest()[:16]
        for name, text in env.items()
        if text and name in SETTABLE
    }


def differing(env: Mapping[str, str], in_force: Mapping[str, str]) -> list[str]:
    """The names of the settings in an environment that differ from the digests of those in use."""
    return sorted(name for name, text in digests(env).items() if in_force.get(name) != text)


def _read(file: Path | None) -> dict[str, str]:
    if file is None or not file.is_file():
        return {}
    try:
        _, raw = read_toml(file)
    except TomlUnreadable as error:
        raise SettingInvalid("config.toml", str(file), str(error)) from None
    return dict(_setting(file, name, value) for name, value in raw.items())


def _setting(file: Path, name: str, value: object) -> tuple[str, str]:
    if variable(name) not in SETTABLE or name != name.lower():
        near = nearest(name, sorted(one.removeprefix(PREFIX).lower() for one in SETTABLE))
        hint = f"did you mean {near!r}?" if near else "docs/settings.md lists the settings"
        # Without the value: the name may be that of a secret, misspelt.
        raise SettingInvalid(f"{name} in {file}", None, f"there is no such setting; {hint}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SettingInvalid(f"{name} in {file}", str(value), "give a text or a number")
    return variable(name), str(value)
