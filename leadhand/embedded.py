"""Gives a command the embedded stack of its folder: joins the one that runs, or starts it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from leadhand import detach, locks
from leadhand import home as home_folder
from leadhand.modules import only_ours, python_module
from leadhand.settings import ClientSettings, environment
from leadhand.start_errors import StackElsewhere, StackNotStarted
from leadhand.supervisor import LINGER_S, Commands

Say = Callable[[str], None]

_PATIENCE_S = 150.0
_LOOK_S = 0.02
#: How often a stack that ends without a word is started before we give up.
_STARTS = 3


class Connection:
    """Where the stack's API is; the stack stays while this is open, or until the process ends."""

    def __init__(self, *, url: str, token: str, home: Path, commands_lock: int) -> None:
        self.url = url
        self.token = token
        self.home = home
        self._commands_lock: int | None = commands_lock

    def close(self) -> None:
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
    cwd: Path | None = None,
    *,
    say: Say | None = None,
    env: Mapping[str, str] | None = None,
    commands: Commands | None = None,
    linger_s: float = LINGER_S,
    patience_s: float = _PATIENCE_S,
) -> Connection:
    """Join the folder's stack or start it, and wait until it is up.

    Raises FolderUnfit, StackNotStarted, StackElsewhere.
    """
    env = environment() if env is None else env
    settings = ClientSettings.from_env(env)
    folder = (cwd or settings.home or Path.cwd()).absolute()
    entry = _Entry(
        folder, env=env, commands=commands, linger_s=linger_s, say=say or (lambda _text: None)
    )
    give_up = time.monotonic() + patience_s
    with entry.at_work(give_up) as commands_lock:
        run = entry.find_or_start(give_up)
        _require_same(entry.home, run, settings.redis_url)
        return Connection(
            url=run["url"], token=run["token"], home=entry.home, commands_lock=commands_lock
        )


class _Entry:
    """One command's way into the stack of one folder."""

    def __init__(
        self,
        cwd: Path,
        *,
        env: Mapping[str, str],
        commands: Commands | None,
        linger_s: float,
        say: Say,
    ) -> None:
        self.home = home_folder.prepare(cwd / ".leadhand")
        self._cwd = cwd
        self._env = env
        self._commands = commands
        self._linger_s = linger_s
        self._say = say
        self._said = ""
        #: The start that is our own; empty until there is one.
        self._attempt = ""

    @contextmanager
    def at_work(self, give_up: float) -> Iterator[int]:
        """Share the commands' lock, which a supervisor that leaves holds until it is gone."""
        with home_folder.fit(self.home):
            lock = locks.open_lock(self.home / "commands.lock")
        try:
            with home_folder.fit(self.home):
                while not locks.share(lock):
                    self._tell("waiting for the former services to end")
                    self._rest(give_up)
            yield lock
        except BaseException:
            os.close(lock)
            raise

    def find_or_start(self, give_up: float) -> dict[str, str]:
        """What `run.json` says once the stack is up."""
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
                run = _texts(self.home / "run.json")
                if run and _is_reachable(self.home, run):
                    return run
                watched = self._watch()
            self._rest(give_up)

    def _take_supervisor_lock(self) -> int | None:
        with home_folder.fit(self.home):
            lock = locks.open_lock(self.home / "supervisor.lock")
            if locks.take(lock):
                return lock
        os.close(lock)
        return None

    def _watch(self) -> str:
        """Tell how the start goes; which start it is."""
        start = _texts(self.home / "start.json")
        attempt, stage = start.get("attempt", ""), start.get("stage", "")
        if stage and attempt != self._attempt:
            stage = f"waiting for the services that another command starts here: {stage}"
        self._tell(stage)
        return attempt

    def _start(self, lock: int) -> str:
        """Start a supervisor that holds our lock, and leave it to itself."""
        attempt = self._attempt = secrets.token_hex(8)
        self._tell("starting the services of this folder")
        with home_folder.fit(self.home):
            (self.home / "run.json").unlink(missing_ok=True)
            fields = {"attempt": attempt, "stage": "", "failure": ""}
            home_folder.write_fields(self.home / "start.json", fields)
            with (self.home / "log" / "supervisor.log").open("ab") as log:
                subprocess.run(  # noqa: S603 - an argv of our own
                    self._supervisor_command(lock, attempt),
                    cwd=self.home,
                    env=only_ours(self._env),
                    pass_fds=[lock],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    check=False,  # its log tells, and the lock is free again
                )
        return attempt

    def _supervisor_command(self, lock: int, attempt: str) -> list[str]:
        return [
            *(sys.executable, "-I", "-S", detach.__file__),
            *python_module("leadhand.supervisor", self._env),
            *("--home", str(self.home), "--cwd", str(self._cwd)),
            *("--linger", str(self._linger_s)),
            *("--lock-fd", str(lock), "--attempt", attempt),
            *(("--commands", json.dumps(self._commands._asdict())) if self._commands else ()),
        ]

    def _require_no_failure(self, watched: str, starts: int) -> None:
        """Raise what the start that we waited for has failed with."""
        start = _texts(self.home / "start.json")
        if watched and start.get("attempt") == watched and start.get("failure"):
            raise StackNotStarted(str(self.home), start["failure"], "")
        if starts >= _STARTS:
            raise self._not_started(f"the supervisor ended {starts} times")

    def _rest(self, give_up: float) -> None:
        if time.monotonic() > give_up:
            raise self._not_started(f"not in time (last: {self._said or 'nothing was said'})")
        time.sleep(_LOOK_S)

    def _not_started(self, why: str) -> StackNotStarted:
        tail = home_folder.tail(self.home / "log" / "supervisor.log")
        return StackNotStarted(str(self.home), why, tail)

    def _tell(self, text: str) -> None:
        if text and text != self._said:
            self._said = text
            self._say(text)


def _is_reachable(home: Path, run: Mapping[str, str]) -> bool:
    """False where it is just going. Raises StackElsewhere for one of another machine."""
    if run.get("host") != socket.gethostname():
        why = f"they run on the machine {run.get('host')!r}, which shares this folder"
        raise StackElsewhere(str(home), why, "work there, or name a local folder by LEADHAND_HOME")
    port = int(run["url"].rpartition(":")[2])
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    except OSError:
        return False
    return True


def _require_same(home: Path, run: Mapping[str, str], redis_url: str | None) -> None:
    if redis_url and run.get("redis_url") != redis_url:
        why = "they use another Redis than LEADHAND_REDIS_URL names now"
        hint = f"wait until its sessions have ended, or end process {run.get('pid')}"
        raise StackElsewhere(str(home), why, hint)


def _texts(path: Path) -> dict[str, str]:
    return {name: str(value) for name, value in home_folder.read_fields(path).items()}
