"""Runs the embedded stack of one state folder: Redis, the API and a worker, for as long as needed.

Two locks in the state folder say who lives; the kernel frees both when their holders die, so
neither a process id nor a left-over file is ever trusted:

- `supervisor.lock` is held alone by the supervisor for all of its life. A command that wants the
  stack tries to take it. Who gets it is the one starter: it hands the locked file itself to the
  supervisor that it starts, so the lock is never free in between, and of many commands at once
  exactly one starts a stack. All others wait for `run.json`, which the starter has removed.
- `commands.lock` is shared by every command at work, from before it looks for a supervisor until
  it ends. A supervisor that wants to leave takes it alone, looks at the sessions once more, and
  keeps it until it is gone. So either the command came first and the supervisor stays, or the
  command waits at this lock and then finds `supervisor.lock` free and starts the stack anew.

`start.json` tells how a start goes and, where it failed, why. `run.json` tells where the API is,
from when it answers and a worker is up until the supervisor leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from leadhand import home as home_folder
from leadhand import leash, locks, log_files
from leadhand.keepsakes import agents_files, own_port, own_secrets, require_answer
from leadhand.life import Life
from leadhand.local_api import LocalApi
from leadhand.modules import python_module
from leadhand.redis_server import RedisServer
from leadhand.service_environment import Stack, broker_of, service_environment
from leadhand.services import Kept, Program
from leadhand.settings import environment
from leadhand.start_errors import EmbeddedError, StackElsewhere, StackNotStarted

_log = logging.getLogger("leadhand.supervisor")

LINGER_S = 10.0
_START_S = 90.0
#: A service that ended this often before all were up will not come up.
_ENDS_AT_START = 3
_LOOK_S = 0.1
_LIFE_LOOK_S = 0.5
_LOGS_LOOK_S = 10.0
_WORKER_STOP_S = 15.0
_API_STOP_S = 5.0


class Commands(NamedTuple):
    """What runs the API and the worker."""

    api: tuple[str, ...]
    worker: tuple[str, ...]


class _Asked(Exception):
    """Somebody asked us to end."""


class Supervisor:
    """One life of the stack, from its start to its stop."""

    def __init__(
        self,
        home: Path,
        *,
        lock: int,
        commands: Commands,
        env: Mapping[str, str],
        linger_s: float | None,
        attempt: str = "",
    ) -> None:
        self._home = home
        self._lock = lock
        self._commands = commands
        self._env = env
        self._linger_s = linger_s
        self._attempt = attempt
        self._kept: list[Kept] = []
        self._programs: list[Program] = []

    def run(self, cwd: Path) -> int:
        """Start everything, stay as long as needed, stop everything; the exit code."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, _on_signal)
            stack = self._start(cwd)
            self._serve(stack)
        except _Asked:
            _log.info("asked to end")
        except EmbeddedError as error:
            _log.error("%s", error)
            with contextlib.suppress(EmbeddedError):  # a full disk takes no last word either
                self._tell(failure=str(error))
            return 1
        finally:
            self._stop()
        return 0

    def _start(self, cwd: Path) -> Stack:
        self._forget_run()
        stack = self._describe(cwd)
        env = service_environment(stack, self._env)
        self._tell(stage="starting the API and a worker")
        self._keep(
            "api", Program("api", self._commands.api, home=self._home, env=env, stop_s=_API_STOP_S)
        )
        worker = Program(
            "worker", self._commands.worker, home=self._home, env=env, stop_s=_WORKER_STOP_S
        )
        self._keep("worker", worker)
        self._wait_until_up(stack)
        self._publish(stack)
        return stack

    def _describe(self, cwd: Path) -> Stack:
        redis_url = self._env.get("LEADHAND_REDIS_URL") or ""
        broker_url = self._env.get("LEADHAND_BROKER_URL") or redis_url
        own_redis = not redis_url
        if redis_url:
            require_answer(self._home, redis_url)
        else:
            redis_url = self._start_redis()
            broker_url = broker_url or broker_of(redis_url)
        ours = own_secrets(self._home)
        return Stack(
            home=self._home,
            redis_url=redis_url,
            broker_url=broker_url,
            secret=self._env.get("LEADHAND_SECRET") or ours["secret"],
            api_token=self._env.get("LEADHAND_API_TOKEN") or ours["api_token"],
            api_port=own_port(self._home),
            supervisor_pid=os.getpid(),
            agents_files=agents_files(cwd),
            flows=(cwd / "flows",),
            tools=(cwd / "tools",),
            own_redis=own_redis,
        )

    def _start_redis(self) -> str:
        self._tell(stage="starting Redis")
        server = RedisServer(self._home)
        try:
            return server.start()
        finally:
            self._kept.append(Kept("redis", server, began_s=time.monotonic()))

    def _keep(self, name: str, program: Program) -> None:
        program.relaunch()
        self._programs.append(program)
        self._kept.append(Kept(name, program, began_s=time.monotonic()))

    def _wait_until_up(self, stack: Stack) -> None:
        api = LocalApi(stack.api_port, stack.api_token)
        give_up = time.monotonic() + _START_S
        while not _is_up(api, stack.worker_name):
            self._look_after_services()
            for kept in self._kept:
                if kept.ends_in_a_row >= _ENDS_AT_START:
                    why = f"{kept.name} ended {kept.ends_in_a_row} times in a row"
                    raise self._not_started(why, kept.service.log)
            if time.monotonic() > give_up:
                why = f"the API and a worker were not up within {_START_S:g} s"
                raise self._not_started(why, self._kept[-1].service.log)
            time.sleep(_LOOK_S / 2)

    def _serve(self, stack: Stack) -> None:
        lock = locks.open_lock(self._home / "commands.lock")
        sessions = LocalApi(stack.api_port, stack.api_token)
        linger_s = float("inf") if self._linger_s is None else self._linger_s
        life = Life(lock, sessions, linger_s=linger_s)
        life_due = logs_due = 0.0
        while locks.is_that_file(self._lock, self._home / "supervisor.lock"):
            now = time.monotonic()
            self._look_after_services()
            if now >= life_due:
                if life.is_over(now):
                    _log.info("nobody is at work and no session is active")
                    return
                life_due = now + _LIFE_LOOK_S
            if now >= logs_due:
                log_files.bound(self._home / "log")
                logs_due = now + _LOGS_LOOK_S
            time.sleep(_LOOK_S)
        _log.warning("the state folder was removed")

    def _look_after_services(self) -> None:
        for kept in self._kept:
            news = kept.look(time.monotonic())
            if news:
                _log.warning("%s", news)

    def _publish(self, stack: Stack) -> None:
        home_folder.write_fields(
            self._home / "run.json",
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "url": stack.api_url,
                "token": stack.api_token,
                "redis_url": stack.redis_url,
                "started_at": datetime.now(UTC).isoformat(),
            },
        )
        self._tell(stage="up")

    def _stop(self) -> None:
        """End the worker and the API side by side, then Redis, which both need to the last."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if locks.is_that_file(self._lock, self._home / "supervisor.lock"):
            self._forget_run()
        for program in self._programs:
            program.ask_to_end()
        for kept in reversed(self._kept):
            kept.service.stop()
            _log.info("%s has ended", kept.name)
        _log.info("all services have ended")

    def _forget_run(self) -> None:
        (self._home / "run.json").unlink(missing_ok=True)

    def _tell(self, *, stage: str = "", failure: str = "") -> None:
        fields = {"attempt": self._attempt, "stage": stage, "failure": failure}
        with home_folder.fit(self._home):
            home_folder.write_fields(self._home / "start.json", fields)

    def _not_started(self, why: str, log: Path) -> StackNotStarted:
        return StackNotStarted(str(self._home), why, home_folder.tail(log))


def main(argv: Sequence[str] | None = None) -> int:
    """Supervise, as the command line says."""
    options = _options(argv)
    leash.hide()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    env = environment()
    try:
        home = home_folder.prepare(options.home.absolute())
        lock = options.lock_fd if options.lock_fd is not None else _take_over(home)
    except EmbeddedError as error:
        _log.error("%s", error)
        return 1
    os.set_inheritable(lock, False)
    os.umask(0o077)
    supervisor = Supervisor(
        home,
        lock=lock,
        commands=commands_from(options.commands, env),
        env=env,
        linger_s=None if options.foreground and options.linger is None else _linger(options.linger),
        attempt=options.attempt,
    )
    return supervisor.run(options.cwd.absolute())


def commands_from(given: str | None, env: Mapping[str, str]) -> Commands:
    """The commands as JSON gives them, else our own API and worker."""
    if given is None:
        return Commands(api=python_module("api", env), worker=python_module("workers", env))
    fields = json.loads(given)
    return Commands(api=tuple(fields["api"]), worker=tuple(fields["worker"]))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m leadhand.supervisor", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the state folder, .leadhand")
    parser.add_argument("--cwd", type=Path, default=Path(), help="where agents.toml is looked for")
    parser.add_argument("--linger", type=float, help=f"seconds to stay unused ({LINGER_S:g})")
    parser.add_argument("--foreground", action="store_true", help="stay until told to end")
    parser.add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attempt", default="", help=argparse.SUPPRESS)
    parser.add_argument("--commands", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _linger(given: float | None) -> float:
    return LINGER_S if given is None else given


def _take_over(home: Path) -> int:
    lock = locks.open_lock(home / "supervisor.lock")
    if not locks.take(lock):
        hint = "end that one first, or use it: every command in its folder does"
        raise StackElsewhere(str(home), "another supervisor runs them", hint)
    return lock


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise _Asked


def _is_up(api: LocalApi, worker_name: str) -> bool:
    try:
        return api.is_ready() and api.has_worker(worker_name)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
