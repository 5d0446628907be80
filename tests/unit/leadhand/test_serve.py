"""`leadhand.serve` finds the server's own packages, whatever else has their names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("app", "api", "tasks", "workers")


def serve(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEADHAND_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "leadhand.serve", *arguments],
        cwd=cwd, env={**kept, **(env or {})}, capture_output=True, text=True, timeout=20,
    )  # fmt: skip


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of modules that have the names of the server's packages."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the wrong {name} was imported')\n")
    return tmp_path


@pytest.mark.parametrize("service", ["probe", "worker", "api"])
def test_a_service_ignores_modules_of_its_names_on_pythonpath(foreign: Path, service: str) -> None:
    done = serve(service, cwd=foreign, env={"PYTHONPATH": str(foreign)})
    assert "redis" in (done.stdout + done.stderr).lower(), "it reached its own settings"
    assert "wrong" not in done.stdout + done.stderr
    assert done.returncode == 1


@pytest.fixture
def installed(foreign: Path) -> Path:
    """The layout of a wheel beside those modules, with a probe that prints its own place."""
    (foreign / "leadhand").mkdir()
    for name in ("__init__.py", "serve.py"):
        shutil.copy(ROOT / "leadhand" / name, foreign / "leadhand")
    packed = foreign / "leadhand" / "_server" / "workers"
    packed.mkdir(parents=True)
    (packed / "__init__.py").touch()
    (packed / "probe.py").write_text(
        "import subprocess, sys\n"
        "print(__name__, __file__, sys.argv[1:], flush=True)\n"
        "subprocess.run([sys.executable, '-P', '-c', 'import sys; print(sys.path)'])\n"
    )
    return foreign


def test_a_service_runs_from_the_folder_inside_the_package(installed: Path) -> None:
    done = serve("probe", "--given", cwd=installed, env={"PYTHONPATH": str(installed)})
    probe = installed / "leadhand" / "_server" / "workers" / "probe.py"
    assert done.stdout.splitlines()[0] == f"__main__ {probe} ['--given']", done.stderr


def test_a_child_of_a_service_does_not_inherit_the_folder(installed: Path) -> None:
    done = serve("probe", cwd=installed, env={"PYTHONPATH": str(installed)})
    path = done.stdout.splitlines()[1]
    assert str(installed) in path
    assert "_server" not in path


@pytest.mark.parametrize("arguments", [[], ["flower"]])
def test_a_name_that_is_no_service_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    done = serve(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "name one of api, worker, probe, chat" in done.stderr


def test_the_package_runs_as_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "leadhand", "--version"],
        cwd=tmp_path, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "version" in done.stdout
