"""How to run one of our own modules so that nobody's namesake of it is run in its place.

`app`, `api` and `tasks` are common names: the current folder is kept off the path (-P), and so is
what the environment adds to it, unless that is how this very package was found.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

#: The folder that holds this package and those that are installed with it.
ROOT = Path(__file__).resolve().parent.parent


def python_module(module: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The command that runs it."""
    ignore = () if _found_by_environment(env) else ("-E",)
    return (sys.executable, "-P", *ignore, "-m", module)


def only_ours(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, its path for imports cut down to where this package is, if it names that."""
    if not _found_by_environment(env):
        return dict(env)
    return {**env, "PYTHONPATH": str(ROOT)}


def _found_by_environment(env: Mapping[str, str]) -> bool:
    entries = env.get("PYTHONPATH", "").split(os.pathsep)
    return any(entry and Path(entry).resolve() == ROOT for entry in entries)
