"""Connects a command to its user's embedded stack: joins a running stack or starts one."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from leadhand.local import daemonize, processes, user_state
from leadhand.local.api_probe import proves_itself
from leadhand.local.environment import require_valid, with_config
from leadhand.local.errors import StackElsewhere, StackNotStarted, StackSilent
from leadhand.local.processes import only_ours, python_module
from leadhand.local.services import (
    API_ONLY,
    SILENT_S,
    describe_silence,
    find_running,
    read_run,
    require_here,
)
from leadhand.local.supervisor import Commands
from leadhand.local.user_state import state_folder
from leadhand.local.versions import (
    compare_settings,
    replace_if_older,
    require_not_downgrade,
    require_usable,
)
from leadhand.settings import ClientSettings, environment

Say = Callable[[str], None]

_PATIENCE_S = 150.0
_LOOK_S = 0.02
#: Seconds that services which run, but do not respond, get.
_SILENCE_S = 30.0
#: How often a stack that ends without an error is started.
_STARTS = 3


class Connection:
    """The address of a stack's API; keeps the stack running until it is closed."""

    def __init__(self, *, url: str, token: str, home: Path, commands_lock: int) -> None:
        self.url = url
        self.token = token
        self.home = home
        self._commands_lock: int | None = commands_lock

    def close(self) -> None:
        """Release the lock that keeps the embedded services running."""
        if self._commands_lock is not None:
            os.close(self._commands_lock)
            self._commands_lock = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()


def ensure(
    home: Path | None = None,
    *,
    say: Say | None = None,
    env: Mapping[str, str] | None = None,
    commands: Commands | None = None,
    patience_s: float = _PATIENCE_S,
    needs_worker: bool = True,
) -> Connection:
    """Connects to the services of a state folder; starts them if they do not run.

    By default the folder is that of the environment. Without `needs_worker` it does not wait for
    the worker, which starts after the API.

    Raises FolderUnfit, UserStateUnfit, StackNotStarted, StackElsewhere,
    SettingInvalid.
    """
    env = environment() if env is None else env
    wanted = with_config(env)
    settings = ClientSettings.from_env(wanted)  # a fault is reported before any start
    require_valid(wanted)
    home = (home or state_folder(env)).absolute()
    entry = _Entry(
        home,
        env=env,
        commands=commands,
        needs_worker=needs_worker,
        say=say or (lambda _text: None),
    )
    give_up = time.monotonic() + patience_s
    with entry.at_work(give_up) as commands_lock:
        run = entry.find_or_start(give_up)
        if replace_if_older(entry.home, run, commands_lock):
            run = entry.find_or_start(give_up)
        require_usable(entry.home, run, entry.say)
        _require_same(entry.home, run, settings.redis_url)
        if not entry.has_started:
            compare_settings(run, wanted, entry.say)
        return Connection(
            url=run["url"], token=run["token"], home=entry.home, commands_lock=commands_lock
        )


def join(home: Path, *, env: Mapping[str, str]) -> Connection | None:
    """Connects to the services of a state folder if they run; else returns None and starts none.

    Raises FolderUnfit, StackElsewhere.
    """
    if not (home / "run.json").is_file():
        return None
    user_state.require_own(home)
    with user_state.fit(home):
        commands_lock = processes.open_lock(home / "commands.lock")
    try:
        run = read_run(home)
        processes.mark(commands_lock)
        if not (processes.share(commands_lock) and find_running(home) is not None and run):
            return None
        if not _is_reachable(home, run):
            return None
        _require_same(home, run, ClientSettings.from_env(env).redis_url)
        kept = os.dup(commands_lock)  # it shares the lock
        return Connection(url=run["url"], token=run["token"], home=home, commands_lock=kept)
    finally:
        os.close(commands_lock)


class _Entry:
    """Joins or starts the stack of one state folder for one command."""

    def __init__(
        self,
        home: Path,
        *,
        env: Mapping[str, str],
        commands: Commands | None,
        needs_worker: bool,
        say: Say,
    ) -> None:
        self.home = user_state.prepare(home)
        self._env = env
        self._commands = commands
        self._needs_worker = needs_worker
        self.say = say
        self._last_text = ""
        self._commands_lock = -1
        self._silent_since = 0.0
        #: The id of this command's own start; '' before that.
        self._attempt = ""

    @property
    def has_started(self) -> bool:
        """Whether this command has started services itself."""
        return bool(self._attempt)

    @contextmanager
    def at_work(self, give_up: float) -> Iterator[int]:
        """Hold the shared commands lock; waits while a supervisor that shuts down holds it."""
        with user_state.fit(self.home):
            lock = self._commands_lock = processes.open_lock(self.home / "commands.lock")
        try:
            with user_state.fit(self.home):
                processes.mark(lock)
                if not processes.share(lock):
                    self._rest(give_up)  # a supervisor that looks holds it for a moment
                while not processes.share(lock):
                    self._tell("waiting for the previous services to end")
                    self._rest(give_up)
            yield lock
        except BaseException:
            os.close(lock)
            raise

    def find_or_start(self, give_up: float) -> dict[str, str]:
        """The fields of `run.json` once the stack is up."""
        watched, starts = "", 0
        while True:
            lock = self._take_supervisor_lock()
            if lock is not None:
                try:
                    self._require_no_failure(watched, starts)
                    watched, starts = self._start(lock), starts + 1
                finally:
                    os.close(lock)
            else:
                run = read_run(self.home)
                is_up = bool(run) and not (self._needs_worker and run["ready"] == API_ONLY)
                if is_up:
                    asked = time.monotonic()
                    if _is_reachable(self.home, run):
                        return run
                    self._note_silence(run, asked)
                watched = self._watch()
            self._rest(give_up)

    def _take_supervisor_lock(self) -> int | None:
        with user_state.fit(self.home):
            lock = processes.open_lock(self.home / "supervisor.lock")
            if processes.take(lock):
                return lock
        os.close(lock)
        return None

    def _note_silence(self, run: Mapping[str, str], asked: float) -> None:
        """Tell once that services do not respond. Raises StackSilent if they do not for long."""
        self._silent_since = self._silent_since or asked
        silent_s = time.monotonic() - self._silent_since
        if silent_s > _SILENCE_S:
            raise StackSilent(str(self.home), describe_silence(run))
        if silent_s > SILENT_S:
            self._tell(f"{describe_silence(run)}; trying for {_SILENCE_S:g} s")

    def _watch(self) -> str:
        """Report the progress of a start; return the start's id."""
        start = self._read_start()
        attempt, stage = start.get("attempt", ""), start.get("stage", "")
        if stage == "up":
            return attempt
        if stage and attempt != self._attempt:
            stage = f"waiting for the services that another command starts: {stage}"
        self._tell(stage)
        return attempt

    def _start(self, lock: int) -> str:
        """Start a supervisor that inherits the lock, detached from this process."""
        require_not_downgrade(self.home)
        attempt = self._attempt = secrets.token_hex(8)
        self._tell("starting Leadhand's services")
        with user_state.fit(self.home):
            os.ftruncate(lock, 0)  # the process id of the supervisor before
            (self.home / "run.json").unlink(missing_ok=True)
            fields = {"attempt": attempt, "stage": "", "failure": ""}
            user_state.write_fields(self.home / "start.json", fields)
            with (self.home / "log" / "supervisor.log").open("ab") as log:
                subprocess.run(  # noqa: S603 - a fixed argv
                    self._supervisor_command(lock, attempt),
                    cwd=self.home,
                    env=only_ours(self._env),
                    pass_fds=[lock],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    check=False,  # on failure its log has the reason, and the lock is free
                )
        return attempt

    def _supervisor_command(self, lock: int, attempt: str) -> list[str]:
        return [
            *(sys.executable, "-I", "-S", daemonize.__file__),
            *python_module("leadhand.local.supervisor", self._env),
            *("--home", str(self.home)),
            *("--lock-fd", str(lock), "--attempt", attempt),
            *(("--commands", json.dumps(self._commands._asdict())) if self._commands else ()),
        ]

    def _require_no_failure(self, watched: str, starts: int) -> None:
        """Raise StackNotStarted if the start that was waited for has failed."""
        start = self._read_start()
        if watched and start.get("attempt") == watched and start.get("failure"):
            raise StackNotStarted(str(self.home), start["failure"], "")
        if starts >= _STARTS:
            raise self._not_started(f"the supervisor ended {starts} times")

    def _read_start(self) -> dict[str, str]:
        fields = user_state.read_fields(self.home / "start.json")
        return {name: str(value) for name, value in fields.items()}

    def _rest(self, give_up: float) -> None:
        if time.monotonic() > give_up:
            raise self._not_started(f"it timed out (last step: {self._last_text or 'none'})")
        processes.mark(self._commands_lock)  # services that end do so at once
        time.sleep(_LOOK_S)

    def _not_started(self, why: str) -> StackNotStarted:
        tail = user_state.tail(self.home / "log" / "supervisor.log")
        return StackNotStarted(str(self.home), why, tail)

    def _tell(self, text: str) -> None:
        if text and text != self._last_text:
            self._last_text = text
            self.say(text)


def _is_reachable(home: Path, run: Mapping[str, str]) -> bool:
    """Whether the API accepts connections. Raises StackElsewhere for another machine's stack."""
    require_here(home, run)
    port = int(run["url"].rpartition(":")[2])
    try:
        proved = proves_itself(port, run["proof_key"])
    except OSError:
        return False
    if not proved:
        why = f"port {port} is held by a program that is not their API"
        raise StackElsewhere(str(home), why, "`leadhand restart` starts them on another port")
    return True


def _require_same(home: Path, run: Mapping[str, str], redis_url: str | None) -> None:
    if redis_url and run.get("redis_url") != redis_url:
        why = "they use a Redis other than that of LEADHAND_REDIS_URL"
        hint = f"wait until its sessions have ended, or end process {run.get('pid')}"
        raise StackElsewhere(str(home), why, hint)
