"""The client's settings from environment variables; no other module of leadhand/ reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from leadhand.errors import SettingInvalid
from leadhand.models.session_environment import ClientVariables, given, invalid


class ClientSettings(ClientVariables):
    """The address of the API and, inside a doer or checker, its session and step."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> ClientSettings:
        """Read the client's settings from the environment. Raises SettingInvalid."""
        env = os.environ if env is None else env
        try:
            return cls.model_validate(given(cls, env))
        except ValidationError as error:
            raise SettingInvalid(*invalid(error, cls)) from None


def use_home(folder: Path) -> None:
    """Sets the state folder for this process and its children, like LEADHAND_HOME."""
    os.environ["LEADHAND_HOME"] = str(folder.absolute())


def current_folder() -> Path | None:
    """Returns the current folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def current_umask() -> int:
    """Returns the umask of this process, which can only be read by setting another."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def environment() -> dict[str, str]:
    """Returns a copy of the environment, for child processes."""
    return dict(os.environ)
