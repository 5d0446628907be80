"""Builds the distributions and installs the wheel beside packages that share the server's names."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.deploy.compose import ROOT

#: Each one only says whose it is.
FOREIGN = ("app/__init__.py", "api.py", "tasks.py")
UNITS = {"api": "leadhand-api.service", "worker": "leadhand-worker@.service"}
#: What would lead the processes of the test to the checkout.
_OF_THE_TEST = ("LEADHAND_", "COVERAGE_", "PYTHON", "VIRTUAL_ENV")


def build(source: Path, target: Path, *kinds: str) -> None:
    """Build distributions of a source tree with the hatchling of the tests."""
    wanted = [word for kind in kinds for word in ("-t", kind)]
    command = [sys.executable, "-P", "-m", "hatchling", "build", *wanted, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=60)


def contents(wheel: Path) -> dict[str, bytes]:
    """Return every file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist and return the source tree."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source


class Installation:
    """A virtual environment that has the wheel, what it needs, and foreign modules."""

    def __init__(self, folder: Path, python: str) -> None:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
        self.bin = folder / "bin"
        self.python = self.bin / "python"
        (self.packages,) = (folder / "lib").glob("python*/site-packages")
        for name in FOREIGN:
            file = self.packages / name
            file.parent.mkdir(exist_ok=True)
            file.write_text("WHO = 'foreign'\n")
        kept = {n: v for n, v in os.environ.items() if not n.startswith(_OF_THE_TEST)}
        self.env = {**kept, "PATH": f"{self.bin}{os.pathsep}{kept['PATH']}"}

    def install(self, wheel: Path) -> None:
        """Install the wheel alone, and lend it the packages that the tests run with."""
        self.pip("--no-deps", "--no-index", str(wheel))
        # A path in a .pth is only appended: the .pth files of that folder are not read.
        (self.packages / "lent.pth").write_text(sysconfig.get_path("purelib"))

    def pip(self, *arguments: str) -> None:
        """Install with the pip of the tests."""
        pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "-q"]
        command = [*pip, "--python", str(self.python), "install", *arguments]
        subprocess.run(command, check=True, timeout=500)

    def run(self, *command: str, cwd: Path, **env: str) -> str:
        """Run a command of the environment and return its standard output."""
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=cwd, env={**self.env, **env}, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def probe(self, *, cwd: Path, **env: str) -> bool:
        """Run the health check of the Kubernetes manifest and return whether it passed."""
        manifest = ROOT / "deploy" / "kubernetes" / "worker.yaml"
        documents = yaml.safe_load_all(manifest.read_text())
        deployment = next(one for one in documents if one["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        _python, *words = container["livenessProbe"]["exec"]["command"]
        done = subprocess.run(
            [self.python, *words], cwd=cwd, env={**self.env, **env}, capture_output=True, timeout=30
        )
        return done.returncode == 0

    @contextmanager
    def unit(self, name: str, *, cwd: Path, env: Mapping[str, str]) -> Iterator[Path]:
        """Start the ExecStart of a systemd unit; yields its log and ends it with TERM."""
        unit = (ROOT / "deploy" / "systemd" / UNITS[name]).read_text()
        (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
        _python, *words = shlex.split(line.removeprefix("ExecStart="))
        log = cwd / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.python, *words], cwd=cwd, env={**self.env, **env}, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            yield log
            process.terminate()
            assert process.wait(timeout=20) == 0, log.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
