"""Tells of the embedded workers before this one, on this host, whether they are no more."""

from __future__ import annotations

import psutil

#: What the workers of a folder's stacks are called, before their supervisor's number.
EMBEDDED = "embedded-"


def is_gone(owner: str) -> bool:
    """Whether the pool process that an attempt belongs to is known to have ended.

    >>> is_gone("embedded-1/4194305"), is_gone("elsewhere-1/4194305"), is_gone("embedded-1/x")
    (True, False, False)
    """
    name, _, pid = owner.rpartition("/")
    if not name.startswith(EMBEDDED) or not pid.isdecimal():
        return False
    return not psutil.pid_exists(int(pid))
