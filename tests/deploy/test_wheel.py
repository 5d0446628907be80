"""The wheel: its content, and that it runs beside packages with the server's names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from leadhand.local.processes import free_port
from tests.deploy.compose import ROOT
from tests.deploy.installation import Installation, build, contents, unpack
from tests.model_server import Say, model_server
from tests.redis_users import of_broker
from tests.waiting import wait_until

SERVER = ("app", "tasks", "workers", "api")
#: The user's own module: it gets the foreign packages, and the server's are not found.
JUDGE = """
import importlib.util
import api, app, tasks

def check(work):
    hidden = importlib.util.find_spec("workers") is None
    return work == "hello" and hidden and {app.WHO, api.WHO, tasks.WHO} == {"foreign"}
"""
#: Each version of Python that the project says it runs on.
CLASSIFIED = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
WHO = "import app, api, tasks; print(app.WHO, api.WHO, tasks.WHO)"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one wheel and one sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def test_only_leadhand_is_at_the_top_of_the_wheel(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"leadhand"}


def test_the_wheel_holds_each_file_of_the_packages(wheel: Path) -> None:
    files = contents(wheel)
    for package in (*SERVER, "leadhand"):
        place = "" if package == "leadhand" else "leadhand/_server/"
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                name = f"{place}{file.relative_to(ROOT)}"
                assert files.get(name) == file.read_bytes(), name


@pytest.mark.timeout(60)
def test_the_sdist_builds_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    source = unpack(sdist, tmp_path / "source")
    build(source, tmp_path / "again", "wheel")
    (again,) = (tmp_path / "again").glob("*.whl")
    assert contents(again) == contents(wheel)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_installed_wheel_serves_beside_foreign_packages(
    wheel: Path, tmp_path: Path, store_url: str
) -> None:
    installation = Installation(tmp_path / "environment", sys.executable)
    installation.install(wheel)
    run_fleet(installation, tmp_path, store_url)
    run_embedded(installation, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", CLASSIFIED)
def test_a_wheel_with_packages_of_the_registry_serves(
    wheel: Path, tmp_path: Path, store_url: str, version: str
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    installation = Installation(tmp_path / "environment", python)
    installation.pip(f"{wheel}[openai]")
    run_fleet(installation, tmp_path, store_url)
    run_embedded(installation, tmp_path)


def run_fleet(installation: Installation, folder: Path, redis_url: str) -> None:
    """Start API, worker and probe as their units do, and run a session with the command line."""
    assert installation.run("python", "-P", "-c", WHO, cwd=folder) == "foreign foreign foreign\n"
    where = installation.run(
        "python", "-c", "import leadhand; print(leadhand.__file__)", cwd=folder
    )
    assert Path(where).is_relative_to(installation.packages)
    (folder / "judge.py").write_text(JUDGE)
    url = f"http://127.0.0.1:{free_port()}"
    env = fleet_environment(folder, redis_url, url)
    with model_server(lambda asked: Say("hello")) as model, ExitStack() as units:
        (folder / "agents.toml").write_text(
            f'[agents.m]\nmodel = {{name = "m", base_url = "{model.url}/v1", key_env = ""}}\n'
        )
        for name in ("api", "worker"):
            units.enter_context(installation.unit(name, cwd=folder, env=env))
        wait_until(lambda: installation.probe(cwd=folder, **env), timeout=40)
        wait_until(lambda: is_ready(url), timeout=20)
        told = installation.run(
            *("leadhand", "spawn", "Say hello", "--agent", "m", "--json"),
            *("--checker", "callable: judge:check", "--checker", "true"),
            cwd=folder, LEADHAND_URL=url, LEADHAND_TOKEN=env["LEADHAND_API_TOKEN"],
        )  # fmt: skip
        assert (json.loads(told)["verdict"], json.loads(told)["iterations"]) == ("accept", 1), told
        tried = installation.run("leadhand", "agents", "try", "m", cwd=folder, **env)
        assert tried.startswith("hello\n")
        assert len(model.asked) == 2


def run_embedded(installation: Installation, folder: Path) -> None:
    """Run a session on the services that the command line starts by itself."""
    work = folder / "embedded"
    work.mkdir()
    (work / "judge.py").write_text(JUDGE)
    told = installation.run(
        *("python", "-P", "-m", "leadhand", "spawn", "Say hello", "--json"),
        *("--doer", "echo hello", "--checker", "callable: judge:check"),
        cwd=work,
    )
    assert json.loads(told)["verdict"] == "accept", told


def fleet_environment(folder: Path, redis_url: str, url: str) -> Mapping[str, str]:
    return {
        "LEADHAND_REDIS_URL": redis_url,
        "LEADHAND_BROKER_URL": of_broker(redis_url),
        "LEADHAND_SECRET": "secret of the test",
        "LEADHAND_API_TOKEN": "token of the test",
        "LEADHAND_API_BIND": url.removeprefix("http://"),
        "LEADHAND_API_URL": url,
        "LEADHAND_AGENTS": str(folder / "agents.toml"),
        "LEADHAND_SPILL": str(folder / "spill"),
    }


def is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz").is_success
    except httpx2.TransportError:
        return False


def find_python(version: str) -> str | None:
    """Return an interpreter of this version, on the PATH or of pyenv, that starts."""
    pyenv = (Path.home() / ".pyenv" / "versions").glob("*/bin")
    for folder in (*os.environ.get("PATH", "").split(os.pathsep), *map(str, pyenv)):
        python = shutil.which(f"python{version}", path=folder)
        # A shim of pyenv fails where its version is not chosen.
        if python and not subprocess.run([python, "-V"], capture_output=True).returncode:
            return python
    return None
