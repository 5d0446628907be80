"""Ties a process's life to its parent's and keeps its secrets to itself, where the kernel can."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def die_with(parent: int) -> None:
    """Be killed when the parent dies: what would claim or listen on must not outlive it."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)


def hide() -> None:
    """Let no other process of our user read our environment or memory, nor those of our forks.

    A program that we become or start is not hidden: a body below us is as it would be.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
