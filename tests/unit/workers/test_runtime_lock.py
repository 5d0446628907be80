"""What users install is enough: nothing of ours leans on a package that only developers have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

#: Imports modules while those of packages outside of the lock cannot be found.
PROGRAM = """
import importlib, sys
from importlib.metadata import packages_distributions

locked, modules = set(sys.argv[1].split()), sys.argv[2].split()
absent = {
    module for module, owners in packages_distributions().items()
    if not {owner.lower().replace("_", "-").replace(".", "-") for owner in owners} & locked
}

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
for module in modules:
    importlib.import_module(module)
"""


#: Of an extra: the command that imports it says what to install.
OF_EXTRAS = {"leadhand.mcp.server", "workers.tool_servers.client"}


def locked() -> set[str]:
    names = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return {name.replace("_", "-").replace(".", "-") for name in names} | {"leadhand", "pip"}


def imported(*modules: str, without: frozenset[str] = frozenset()) -> str:
    """What went wrong; empty where nothing did."""
    known = " ".join(locked() - without)
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, known, " ".join(modules)],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def test_every_module_of_ours_can_be_imported() -> None:
    ours = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in ("app", "tasks", "workers", "api", "leadhand")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    assert len(ours) > 100
    assert imported(*(module for module in ours if module not in OF_EXTRAS)) == ""


@pytest.mark.parametrize(
    "module", ["kombu.transport.redis", "celery.bin.worker", "celery.apps.worker"]
)
def test_what_celery_imports_when_it_works_is_there(module: str) -> None:
    assert imported(module) == ""


def test_a_package_that_is_missing_would_be_noticed() -> None:
    said = imported("kombu.transport.redis", without=frozenset({"packaging"}))
    assert "No module named 'packaging'" in said


@pytest.mark.parametrize(
    "name", ["Makefile", "deploy/Dockerfile", "docs/operations.md", "examples/demo.sh"]
)
def test_an_install_from_a_lock_takes_the_lock_and_resolves_nothing(name: str) -> None:
    """pip before 24.1 refuses a lock once a package with an extra has a newer release."""
    lines = (ROOT / name).read_text().splitlines()
    locked = [line for line in lines if "--require-hashes" in line]
    assert locked
    assert all("--no-deps" in line for line in locked)
