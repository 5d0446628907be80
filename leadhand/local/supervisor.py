"""Runs the embedded stack of one state folder, Redis, the API and a worker, while it is needed.

Two file locks in the state folder show what runs. The kernel releases them when their holders die,
so neither process ids nor stale files are trusted:

- `supervisor.lock` is held exclusively by the supervisor. A command that needs the stack tries to
  take it. The command that gets it passes the locked descriptor to the supervisor that it starts,
  so the lock is never free meanwhile, and of many commands exactly one starts a stack. The others
  wait for `run.json`, which the starting command has removed.
- `commands.lock` is shared by every attached command, from before it looks for a supervisor until
  it ends. A supervisor that is idle takes it exclusively, checks the sessions once more, and holds
  it until it has ended. So either the command was first and the supervisor stays, or the command
  waits for this lock, then finds `supervisor.lock` free and starts the stack again. Every command
  marks the file, again and again while it waits: so the supervisor knows when the last one came,
  and ends its services at once if one waits for that.

`start.json` has the progress of a start and its error. `run.json` has the API's address, from when
the API is up until the supervisor stops; `ready` in it says whether a worker is up, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol

from leadhand import process_guard
from leadhand.errors import SettingInvalid
from leadhand.local import processes, user_state
from leadhand.local.api_probe import LocalApi
from leadhand.local.credentials import own_port, require_answer, user_agents_files
from leadhand.local.environment import Stack, broker_of, digests, service_environment, with_config
from leadhand.local.errors import EmbeddedError, StackElsewhere, StackNotStarted, with_tail
from leadhand.local.processes import service_command
from leadhand.local.redis_server import RedisServer
from leadhand.local.services import (
    API_ONLY,
    ENDED_FOR_GOOD,
    Program,
    RestartedService,
    kernel_id,
    write_pid,
)
from leadhand.local.versions import (
    API,
    code_stamp,
    own_version,
    record_version,
    require_not_downgrade,
)
from leadhand.settings import ClientSettings, environment

#: Seconds for which an API that does not respond is assumed to have live sessions.
_BLIND_S = 60.0
#: Seconds between two looks at the sessions while no command is attached.
_SESSIONS_LOOK_S = 15.0
_log = logging.getLogger("leadhand.local.supervisor")
_START_S = 90.0
#: How often a service may end during a start before the start fails.
_ENDS_AT_START = 3
#: In the last line of a service that is not to be started again before something is changed.
_REFUSED = " cannot start: "
#: Seconds between two looks at the services and at the commands.
_LOOK_S = 1.0
_START_LOOK_S = 0.05
_TAKE_OVER_S = 1.0
_LOGS_LOOK_S = 10.0
_WORKER_STOP_S = 15.0
_API_STOP_S = 5.0
_LARGEST = 4 * 1024 * 1024


class Sessions(Protocol):
    """Reports whether a session is live; raises OSError if that is unknown."""

    def has_live_session(self) -> bool:
        """Whether a session is live; raises OSError if that is unknown."""


class IdleShutdown:
    """The idle state of one supervisor; time is an argument.

    The clock starts again with each command, which marks the lock file (`processes.mark`), and
    while a session is live.
    """

    def __init__(self, commands_lock: int, sessions: Sessions, *, linger_s: float) -> None:
        self._commands_lock = commands_lock
        self._sessions = sessions
        self._linger_s = linger_s
        self._mark = processes.read_mark(commands_lock)
        self._idle_since_s: float | None = None
        self._sessions_due_s = 0.0
        self._blind_since_s: float | None = None

    def is_over(self, now_s: float) -> bool:
        """Whether the supervisor was idle long enough to stop; if so, locks new commands out."""
        if self._was_used() or self._idle_since_s is None:
            self._idle_since_s = now_s
        if now_s >= self._sessions_due_s:
            self._sessions_due_s = now_s + min(self._linger_s, _SESSIONS_LOOK_S)
            if self._is_wanted(now_s):
                self._idle_since_s = now_s
        return now_s - self._idle_since_s >= self._linger_s and self._may_leave(now_s)

    def _may_leave(self, now_s: float) -> bool:
        """Check again under the exclusive lock: a command may have come and gone."""
        if not processes.take(self._commands_lock):
            return False
        if processes.read_mark(self._commands_lock) == self._mark and not self._is_wanted(now_s):
            return True
        processes.free(self._commands_lock)
        return False

    def _was_used(self) -> bool:
        """Whether a command is attached, or has been since the last call."""
        mark, before = processes.read_mark(self._commands_lock), self._mark
        self._mark = mark
        if not processes.take(self._commands_lock):
            return True
        processes.free(self._commands_lock)
        return mark != before

    def _is_wanted(self, now_s: float) -> bool:
        try:
            wanted = self._sessions.has_live_session()
        except OSError:
            if self._blind_since_s is None:
                self._blind_since_s = now_s
            return now_s - self._blind_since_s < _BLIND_S
        self._blind_since_s = None
        return wanted

    def close(self) -> None:
        """Close the lock file of commands, which releases its lock."""
        os.close(self._commands_lock)


class Commands(NamedTuple):
    """The commands of the API and the worker."""

    api: tuple[str, ...]
    worker: tuple[str, ...]


class _Terminated(Exception):
    """A signal asked the supervisor to end."""


class _Upgraded(Exception):
    """A service has ended, and the installed code is another one than the others run."""


class Supervisor:
    """Starts the services of one stack, keeps them running, and stops them."""

    def __init__(
        self,
        home: Path,
        *,
        lock: int,
        own: user_state.Secrets,
        commands: Commands,
        env: Mapping[str, str],
        linger_s: float,
        attempt: str = "",
        umask: int = -1,
    ) -> None:
        self._home = home
        #: That of the command which started the services: agents work with it, and so does apply.
        self._umask = umask
        self._lock = lock
        self._own = own
        self._commands = commands
        self._env = env
        self._linger_s = linger_s
        self._attempt = attempt
        self._started_at = datetime.now(UTC).isoformat()
        self._commands_lock = processes.open_lock(home / "commands.lock")
        self._code = code_stamp()
        self._proof_key = secrets.token_hex(32)
        self._kept: list[RestartedService] = []
        self._programs: list[Program] = []

    def run(self) -> int:
        """Run the services until they are idle or a signal arrives; return the exit code."""
        try:
            signal.signal(signal.SIGTERM, _on_signal)
            for number in (signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) != signal.SIG_IGN:  # by nohup, or a shell's `&`
                    signal.signal(number, _on_signal)
            stack = self._start()
            self._serve(stack)
        except _Terminated:
            _log.info("asked to end")
        except _Upgraded:
            text = "Leadhand was upgraded in place, so all services end; run a command again"
            _log.warning(text)
            with contextlib.suppress(EmbeddedError):
                self._tell(failure=text)
        except EmbeddedError as error:
            _log.error("%s", error)
            text = str(error)
            if isinstance(error, StackNotStarted):  # the command says again what did not start
                text = with_tail(error.why, error.tail)
            with contextlib.suppress(EmbeddedError):  # a full disk cannot take this either
                self._tell(failure=text)
            return 1
        finally:
            self._stop()
        return 0

    def _start(self) -> Stack:
        self._forget_run()
        (self._home / ENDED_FOR_GOOD).unlink(missing_ok=True)
        stack = self._describe()
        env = service_environment(stack, self._env)
        with_key = {**env, "LEADHAND_PROOF_KEY": self._proof_key}
        self._tell(stage="starting the API and a worker")
        self._keep(
            "api",
            Program("api", self._commands.api, home=self._home, env=with_key, stop_s=_API_STOP_S),
        )
        worker = Program(
            "worker", self._commands.worker, home=self._home, env=env, stop_s=_WORKER_STOP_S,
            umask=self._umask,
        )  # fmt: skip
        self._keep("worker", worker)
        api = self._local_api(stack)
        self._wait_until(lambda: _is_ready(api))
        self._publish(stack, ready=API_ONLY)
        self._wait_until(lambda: _has_worker(api, stack.worker_name))
        self._publish(stack, ready="all")
        self._tell(stage="up")
        return stack

    def _describe(self) -> Stack:
        redis_url = self._env.get("LEADHAND_REDIS_URL") or ""
        broker_url = self._env.get("LEADHAND_BROKER_URL") or redis_url
        own_redis = not redis_url
        if redis_url:
            require_answer(self._home, redis_url)
        else:
            redis_url = self._start_redis()
            broker_url = broker_url or broker_of(redis_url)
        return Stack(
            home=self._home,
            redis_url=redis_url,
            broker_url=broker_url,
            secret=self._env.get("LEADHAND_SECRET") or self._own.secret,
            api_token=self._env.get("LEADHAND_API_TOKEN") or self._own.api_token,
            api_port=own_port(self._home),
            supervisor_pid=os.getpid(),
            agents_files=user_agents_files(self._env),
            own_redis=own_redis,
        )

    def _start_redis(self) -> str:
        self._tell(stage="starting Redis")
        named = self._env.get("LEADHAND_REDIS_SERVER") or ""
        server = RedisServer(self._home, named=named)
        try:
            return server.start()
        finally:
            self._kept.append(RestartedService("redis", server, began_s=time.monotonic()))

    def _keep(self, name: str, program: Program) -> None:
        program.relaunch()
        self._programs.append(program)
        self._kept.append(RestartedService(name, program, began_s=time.monotonic()))

    def _wait_until(self, is_up: Callable[[], bool]) -> None:
        give_up = time.monotonic() + _START_S
        while not is_up():
            self._look_after_services()
            for kept in self._kept:
                if kept.ends_in_a_row and (why := _why_refused(kept.service.output())):
                    raise StackNotStarted(str(self._home), why, "")
                if kept.ends_in_a_row >= _ENDS_AT_START:
                    why = f"{kept.name} ended {kept.ends_in_a_row} times in a row"
                    raise self._not_started(why, kept.service.log)
            if time.monotonic() > give_up:
                why = f"the API and a worker were not up within {_START_S:g} s"
                raise self._not_started(why, self._kept[-1].service.log)
            time.sleep(_START_LOOK_S)

    def _local_api(self, stack: Stack) -> LocalApi:
        return LocalApi(stack.api_port, stack.api_token, proof_key=self._proof_key)

    def _serve(self, stack: Stack) -> None:
        sessions = self._local_api(stack)
        life = IdleShutdown(self._commands_lock, sessions, linger_s=self._linger_s)
        logs_due = 0.0
        while processes.is_that_file(self._lock, self._home / "supervisor.lock"):
            now = time.monotonic()
            self._look_after_services()
            if life.is_over(now):
                _log.info("idle: no command is attached and no session is live")
                return
            if now >= logs_due:
                rotate_logs(self._home / "log")
                logs_due = now + _LOGS_LOOK_S
            time.sleep(_LOOK_S)
        _log.warning("the state folder was removed")

    def _look_after_services(self) -> None:
        for kept in self._kept:
            if kept.service.has_ended() and code_stamp() != self._code:
                raise _Upgraded  # one service of new code beside old ones may not fit
            news = kept.check(time.monotonic())
            if news:
                _log.warning("%s", news)

    def _publish(self, stack: Stack, *, ready: str) -> None:
        user_state.write_fields(
            self._home / "run.json",
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "kernel": kernel_id(),
                "url": stack.api_url,
                "token": stack.api_token,
                "proof_key": self._proof_key,
                "redis_url": stack.redis_url,
                "version": own_version(),
                "python": sys.executable,
                "api": API,
                "ready": ready,
                "linger_s": "" if math.isinf(self._linger_s) else self._linger_s,
                "settings": json.dumps(digests(self._env)),
                "started_at": self._started_at,
            },
        )

    def _stop(self) -> None:
        """Stop the worker and the API together, then Redis, which both need until their end.

        If a command waits for the end, whatever still runs is killed: what a killed worker had at
        work is free as soon as the next one starts.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if processes.is_that_file(self._lock, self._home / "supervisor.lock"):
            self._forget_run()
        mark = processes.read_mark(self._commands_lock)
        for program in self._programs:
            program.ask_to_end()
        for kept in reversed(self._kept):
            kept.service.stop(lambda: processes.read_mark(self._commands_lock) != mark)
            _log.info("%s has ended", kept.name)
        _log.info("all services have ended")

    def _forget_run(self) -> None:
        (self._home / "run.json").unlink(missing_ok=True)

    def _tell(self, *, stage: str = "", failure: str = "") -> None:
        fields = {"attempt": self._attempt, "stage": stage, "failure": failure}
        with user_state.fit(self._home):
            user_state.write_fields(self._home / "start.json", fields)

    def _not_started(self, why: str, log: Path) -> StackNotStarted:
        return StackNotStarted(str(self._home), why, user_state.tail(log))


def _why_refused(output: str) -> str:
    """What a service wrote at its end about why it cannot start; '' for another end."""
    return (output.splitlines() or [""])[-1].partition(_REFUSED)[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the services of a state folder until they are idle; return the exit code.

    `argv` has the options of the command line.
    """
    options = _options(argv)
    process_guard.hide()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        env = with_config(environment())
        settings = ClientSettings.from_env(env)
        home = options.home.absolute()
        user_state.prepare(home)
        lock = options.lock_fd if options.lock_fd is not None else _take_over(home)
        require_not_downgrade(home)
        with user_state.fit(home):
            write_pid(lock)
            record_version(home)
        own = user_state.read_secrets(home)
    except (EmbeddedError, SettingInvalid) as error:
        _log.error("%s", error)
        if options.attempt:  # the command that waits for it starts no other one
            fields = {"attempt": options.attempt, "stage": "", "failure": str(error)}
            with contextlib.suppress(OSError):  # a full disk cannot take this either
                user_state.write_fields(options.home / "start.json", fields)
        return 1
    os.set_inheritable(lock, False)
    umask = os.umask(0o077)
    supervisor = Supervisor(
        home,
        lock=lock,
        own=own,
        commands=commands_from(options.commands, env),
        env=env,
        linger_s=math.inf if options.foreground else settings.linger,
        attempt=options.attempt,
        umask=umask,
    )
    return supervisor.run()


def commands_from(given: str | None, env: Mapping[str, str]) -> Commands:
    """Parses the commands of API and worker from a JSON option; by default Leadhand's own."""
    if given is None:
        return Commands(api=service_command("api", env), worker=service_command("worker", env))
    fields = json.loads(given)
    return Commands(api=tuple(fields["api"]), worker=tuple(fields["worker"]))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -P -m leadhand.local.supervisor", description=__doc__
    )
    parser.add_argument("--home", type=Path, required=True, help="the state folder")
    parser.add_argument("--foreground", action="store_true", help="run until a signal")
    parser.add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attempt", default="", help=argparse.SUPPRESS)
    parser.add_argument("--commands", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _take_over(home: Path) -> int:
    lock = processes.open_lock(home / "supervisor.lock")
    give_up = time.monotonic() + _TAKE_OVER_S
    while not processes.take(lock):  # a command that looks holds it for a moment
        if time.monotonic() < give_up:
            time.sleep(_START_LOOK_S)
            continue
        hint = "end that one first, or use it with any command"
        raise StackElsewhere(str(home), "another supervisor runs them", hint)
    return lock


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise _Terminated


def _is_ready(api: LocalApi) -> bool:
    try:
        # Of a refused store commands say so, and `leadhand store accept` works.
        return api.is_ready() or api.refuses_store()
    except OSError:
        return False


def _has_worker(api: LocalApi, name: str) -> bool:
    try:
        return api.has_worker(name) or api.refuses_store()
    except OSError:
        return False


def rotate_logs(folder: Path, *, largest: int = _LARGEST) -> None:
    """Rotates each too large log of a folder: copies it to LOG.1 and empties it.

    Writers have the log open for appending, so it is copied and truncated, not renamed.
    """
    for log in folder.glob("*.log"):
        if log.stat().st_size > largest:
            former = log.with_suffix(".log.1")
            shutil.copyfile(log, former)
            os.truncate(log, 0)


if __name__ == "__main__":
    sys.exit(main())
