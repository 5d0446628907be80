"""What runs beside a body as the same user keeps its secrets: its environment is not to be read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.acceptance.project import Project

pytestmark = pytest.mark.acceptance

#: Tells whose environment it could read, whose not, and who named a secret of this folder.
LOOKS = """
import json, os, pathlib
home = str(pathlib.Path.cwd()).encode() + b".state"
read, closed, secrets = [], [], []
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        given = (folder / "environ").read_bytes()
    except PermissionError:
        closed.append(int(folder.name))
        continue
    except OSError:
        continue
    read.append(int(folder.name))
    if b"LEADHAND_SECRET=" in given and home in given:
        secrets.append((folder / "cmdline").read_bytes().decode())
pathlib.Path("seen.json").write_text(json.dumps([read, closed, secrets, os.getpid()]))
"""
#: Root may read everything; without its capabilities it is a user like others.
PLAIN = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.timeout(90)
def test_a_body_reads_no_secret_from_the_processes_around_it(alone: Project) -> None:
    if PLAIN and (
        shutil.which("setpriv") is None or subprocess.run([*PLAIN, "true"], check=False).returncode
    ):
        pytest.skip("root cannot lay down its capabilities here")
    alone.write("looks.py", LOOKS)
    doer = f"{sys.executable} looks.py"
    command = ("leadhand", "spawn", "look", "--doer", doer, "--checker", "test -f seen.json")
    ended = alone.ended(alone.start([*PLAIN, *command]), timeout=60)
    assert ended.code == 0, ended.err
    read, closed, secrets, itself = json.loads((alone.folder / "seen.json").read_text())
    assert itself in read, "it looked in vain"
    assert secrets == []
    assert closed
