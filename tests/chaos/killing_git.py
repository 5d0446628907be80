"""A `git` for the workers of a chaos run: if asked, it kills the process that runs it.

It is asked by a file beside it: `kill before`, `kill after` or `kill during` the next call that
changes a repository. During such a call git itself is killed, too.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

#: When the process that runs git is killed.
TIMES = ("before", "during", "after")
_SCRIPT = """#!{python} -IS
import os, signal, subprocess, sys, time
here, real, words = os.path.dirname(sys.argv[0]), {real!r}, sys.argv[1:]
changes = any(one in words for one in ("rebase", "worktree", "update-ref", "commit", "branch"))


def is_asked(when):
    try:
        os.unlink(os.path.join(here, "kill " + when))
    except FileNotFoundError:
        return False
    return True


if changes and is_asked("before"):
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(1)
if changes and is_asked("during"):
    begun = subprocess.Popen([real, *words])
    time.sleep(0.005)
    os.kill(os.getppid(), signal.SIGKILL)
    begun.kill()
    sys.exit(1)
if changes and os.path.exists(os.path.join(here, "kill after")):
    done = subprocess.run([real, *words])
    if is_asked("after"):
        os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(done.returncode)
os.execv(real, [real, *words])
"""


def install(folder: Path) -> None:
    """Put the `git` into a folder that comes first on the PATH of the workers."""
    folder.mkdir()
    file = folder / "git"
    file.write_text(_SCRIPT.format(python=sys.executable, real=shutil.which("git") or "git"))
    file.chmod(0o755)


def ask(folder: Path, when: str) -> None:
    """Kill the process that calls git next to change a repository."""
    (folder / f"kill {when}").touch()
