"""Builds commands that run Leadhand's modules, and never a user's module of the same name.

`app`, `api` and `tasks` are common names. So the current folder is not on sys.path (-P), and
PYTHONPATH is ignored unless this package was found through it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

#: The folder that has this package and those that are installed with it.
ROOT = Path(__file__).resolve().parents[2]


def python_module(module: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the command line that runs a Python module."""
    ignore = () if _found_by_environment(env) else ("-E",)
    return (sys.executable, "-P", *ignore, "-m", module)


def service_command(service: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the command line that runs a service of `leadhand.serve`."""
    return (*python_module("leadhand.serve", env), service)


def only_ours(env: Mapping[str, str]) -> dict[str, str]:
    """Copies an environment; its PYTHONPATH, if Leadhand is found by it, has only that folder."""
    if not _found_by_environment(env):
        return dict(env)
    return {**env, "PYTHONPATH": str(ROOT)}


def _found_by_environment(env: Mapping[str, str]) -> bool:
    entries = env.get("PYTHONPATH", "").split(os.pathsep)
    return any(entry and Path(entry).resolve() == ROOT for entry in entries)
