"""The clean environment that bodies get: what any program needs, and none of our credentials."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

#: What any program may expect to find.
PLAIN = frozenset({"PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "SHELL", "VIRTUAL_ENV"})
#: What only Leadhand sets; nobody hands these on by name.
OURS = "LEADHAND_"


def clean(inherited: Mapping[str, str], *, named: Iterable[str] = ()) -> dict[str, str]:
    """What a body inherits: the plain names, the locale, and those that an agent's entry names.

    >>> clean({"PATH": "/bin", "LC_ALL": "C", "AWS_KEY": "x", "LEADHAND_SECRET": "y"})
    {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    passed = {name for name in named if not name.startswith(OURS)} | PLAIN
    return {
        name: value for name, value in inherited.items() if name in passed or name.startswith("LC_")
    }


def inherited() -> Mapping[str, str]:
    """The worker's own environment, to hand a part of it on; no setting is read here."""
    return os.environ  # noqa: TID251
