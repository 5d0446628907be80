"""The settings of the user's services: `config.toml` of the user's configuration, and variables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from leadhand.errors import SettingInvalid
from leadhand.local.user_state import home_of
from leadhand.models.suggestions import nearest
from leadhand.models.toml_file import TomlUnreadable, read_toml
from leadhand.models.variables import PREFIX, ServerVariables, given, invalid, names_of, variable

#: The settings of the services that users set; the Redis names the set of services.
SETTABLE = {*names_of(ServerVariables, by_supervisor=False), variable("linger")} - {
    variable("redis_url")
}


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
