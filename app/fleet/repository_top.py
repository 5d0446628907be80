"""Finds where in its repository a folder is, as far as this process can see it. Runs no git."""

from __future__ import annotations

from pathlib import Path


def prefix_in_repository(folder: str) -> str:
    """Returns a folder's path relative to the top of its git repository; '' at the top, or if none.

    The worker checks it: this process may be on another machine, where the folder is unknown.
    """
    here = Path(folder)
    try:
        for above in (here, *here.parents):
            if (above / ".git").exists():
                return "" if above == here else str(here.relative_to(above))
    except OSError:
        return ""
    return ""
