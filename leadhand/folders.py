"""The folder that a session works in, as the server is told of it."""

from __future__ import annotations

from pathlib import Path

from leadhand.settings import ClientSettings


def working_folder(cwd: str | Path | None) -> str:
    """The absolute path; the current folder unless one is named.

    Raises ValueError where there is no such folder. Of a server elsewhere only that server can
    tell, so it is asked by submitting.
    """
    folder = Path(cwd or ".").absolute()
    if ClientSettings.from_env().url is None and not folder.is_dir():
        raise ValueError(f"cwd is {str(cwd)!r}: there is no such folder; make it or name another")
    return str(folder)
