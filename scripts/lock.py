"""Generates the lock files from pyproject.toml, or with --check reports outdated ones."""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RUNTIME, DEV = "requirements.lock", "requirements-dev.lock"
MONITORING, DOCS = "requirements-monitoring.lock", "requirements-docs.lock"
BENCH = "requirements-bench.lock"
LOCKS = (RUNTIME, MONITORING, DEV, DOCS, BENCH)
STAMP = "# made from dependencies "
COMPILE = (
    *("pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
    *("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--no-header"),
)


def main() -> int:
    """Make the locks, or with --check name what is wrong with them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="change nothing, name what is wrong")
    options.add_argument("--upgrade", action="store_true", help="take the newest versions")
    chosen = options.parse_args()
    if not chosen.check:
        make(["--upgrade"] if chosen.upgrade else [])
    complaints = [complaint for name in LOCKS for complaint in faults(name)]
    print(*complaints or ["the locks belong to pyproject.toml"], sep="\n")
    return 1 if complaints else 0


def make(flags: list[str]) -> None:
    """Write all locks with uv, installed into a folder that is thrown away afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        run(Path(folder, "bin", "pip"), "install", "--quiet", "uv>=0.9")
        uv = Path(folder, "bin", "uv")
        run(uv, *COMPILE, *flags, "pyproject.toml", "--group", "dev", "--output-file", DEV)
        # It has every extra, so as a constraint it lets all agree on every version.
        for name, more in (
            (RUNTIME, ()),
            (MONITORING, ("--extra", "monitoring")),
            (BENCH, ("--group", "bench")),
        ):
            wanted = ["pyproject.toml", *more, "--constraint", DEV]
            run(uv, *COMPILE, *flags, *wanted, "--output-file", name)
        # The group alone, so that building the site does not install the server.
        run(uv, *COMPILE, *flags, "--group", "docs", "--constraint", DEV, "--output-file", DOCS)
    for name in LOCKS:
        lock = ROOT / name
        lock.write_text(f"{STAMP}{fingerprint(name)} by `make lock`\n{lock.read_text()}")


def faults(name: str) -> Iterator[str]:
    """Yield one sentence for each thing that is wrong with a lock."""
    lock = ROOT / name
    if not lock.exists():
        yield f"{name} is missing: run `make lock`"
        return
    text = lock.read_text()
    if not text.startswith(STAMP + fingerprint(name)):
        yield f"{name} was made from other dependencies: run `make lock`"
    for number, line in enumerate(text.splitlines(), start=1):
        if "://" in line or line.startswith("-") or str(ROOT) in line:
            yield f"{name}:{number} names a place to download from, or a path: {line!r}"
    for pin in text.replace("\\\n", " ").splitlines():
        if "==" in pin and not pin.lstrip().startswith("#") and "--hash=sha256:" not in pin:
            yield f"{name} pins without a hash: {pin!r}"


def fingerprint(name: str) -> str:
    """Return a short digest of the part of pyproject.toml that a lock is made from."""
    document: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    groups = document["dependency-groups"]
    source = [project["requires-python"], project["dependencies"]]
    if name == MONITORING:
        source.append(project["optional-dependencies"]["monitoring"])
    if name == DEV:
        source.append({"dev": groups["dev"]})
    if name == BENCH:
        source.append({"bench": groups["bench"]})
    if name == DOCS:
        source = [project["requires-python"], groups["docs"]]
    return hashlib.sha256(json.dumps(source).encode()).hexdigest()[:16]


def run(*command: str | Path) -> None:
    """Run one command in the project's folder, or stop with its exit code."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
