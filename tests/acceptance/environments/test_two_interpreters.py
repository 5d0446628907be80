"""Functions run under the submitter's Python, tools under that of the services."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import pytest

from tests.acceptance.project import Project

pytestmark = pytest.mark.acceptance

#: A checker that needs a package of its own environment, and no Leadhand.
CHECKS = """
import importlib.util, json, os, sys

import only_there


def good(work):
    found = {"prefix": sys.prefix, "package": only_there.NAME, "pid": os.getpid(),
             "leadhand": importlib.util.find_spec("leadhand") is not None}
    with open("found.json", "w") as file:
        json.dump(found, file)
    return True
"""
TOOL = """
import sys


def where() -> str:
    return sys.prefix
"""


def environment(folder: Path, name: str) -> Path:
    """A virtual environment with one package that differs from that of others; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "only_there.py").write_text(f"NAME = {name!r}\n")
    return folder / "bin" / "python"


def found(project: Project, python: Path, *options: str) -> dict[str, object]:
    """What the checker found, run by the command with this interpreter."""
    ended = project.leadhand(
        "spawn", "t", "--doer", "true", "--checker", "callable: checks:good",
        "--python", str(python), *options, timeout=60,
    )  # fmt: skip
    assert ended.code == 0, ended.out + ended.err
    seen: dict[str, object] = json.loads((project.folder / "found.json").read_text())
    return seen


@pytest.mark.timeout(200)
def test_each_function_finds_the_packages_of_its_submitter(alone: Project, tmp_path: Path) -> None:
    alone.write("checks.py", CHECKS)
    alone.write("tools/places.py", TOOL)
    pythons = {name: environment(tmp_path / name, name) for name in ("one", "two")}
    with alone.up():
        for name, python in pythons.items():
            seen = found(alone, python)
            assert (seen["package"], seen["prefix"]) == (name, str(tmp_path / name))
            assert seen["leadhand"] is False
        missing = alone.leadhand(
            "spawn", "t", "--doer", "true", "--checker", "callable: checks:good",
            "--max-iterations", "1", timeout=60,
        )  # fmt: skip
        assert missing.code != 0, "the interpreter of the command has no such package"
        assert "only_there" in missing.out + missing.err
        tool = alone.leadhand("tools", "call", "places:where", "--python", str(pythons["one"]),
                              timeout=60)  # fmt: skip
        assert tool.code == 0, tool.out + tool.err
        assert sys.prefix in tool.out
        refused = alone.leadhand("spawn", "t", "--doer", "true", "--checker", "true",
                                 "--python", "/no/such/python")  # fmt: skip
        assert refused.code == 1
        assert "is no program" in refused.err


@pytest.mark.timeout(150)
def test_python_script_brings_its_own_interpreter(alone: Project, tmp_path: Path) -> None:
    """In Python no option is needed: a virtual environment that has Leadhand names itself."""
    python = environment(tmp_path / "own", "own")
    root = str(Path(__file__).parents[3])
    site = next((tmp_path / "own" / "lib").glob("python*")) / "site-packages"
    here = [place for place in sys.path if place.endswith("site-packages")]
    (site / "more.pth").write_text("\n".join([root, *here]) + "\n")
    alone.write("checks.py", CHECKS)
    script = alone.write(
        "run.py",
        "from leadhand.loop import spawn_and_run\n"
        "import checks\n"
        "result = spawn_and_run('t', checks.good, doer='true')\n"
        "assert result.verdict == 'accept', result\n",
    )
    with alone.up():
        ended = alone.ended(alone.start([str(python), str(script)]), timeout=60)
    assert ended.code == 0, ended.out + ended.err
    seen = json.loads((alone.folder / "found.json").read_text())
    assert (seen["package"], seen["prefix"]) == ("own", str(tmp_path / "own"))
