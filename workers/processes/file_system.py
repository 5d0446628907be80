"""Probes what a file system can do, as `git init` does.

A repository's settings say it too, but a doer of an earlier session may have set them: they hide
changes of executable bits, of links, and of files whose names differ in case.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

#: The settings for a file system that can do everything, in which git hides nothing.
CAPABLE = {"core.filemode": "true", "core.symlinks": "true", "core.ignorecase": "false"}


def git_settings(folder: Path) -> dict[str, str]:
    """Returns git's settings for the file system of a folder; CAPABLE if it cannot be written to.

    A temporary folder is made in it.
    """
    found = dict(CAPABLE)
    with suppress(OSError), tempfile.TemporaryDirectory(prefix=".leadhand-", dir=folder) as name:
        file, link = Path(name, "probe"), Path(name, "link")
        file.touch(mode=0o600)
        before = file.stat().st_mode
        file.chmod(0o700)
        has_modes = file.stat().st_mode != before
        try:
            link.symlink_to("probe")
        except OSError:
            found["core.symlinks"] = "false"
        found["core.filemode"] = str(has_modes).lower()
        found["core.ignorecase"] = str(Path(name, "PROBE").exists()).lower()
    return found
