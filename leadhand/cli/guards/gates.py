"""Runs the gates of a stop, one after the other, until one does not pass."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple

from leadhand.models.git_settings import (
    LIST_FILTERS,
    QUIET,
    filters_in,
    repository_top,
    run_programs,
    without_filters,
)
from leadhand.models.guards import AFTER, GateConfig, GateResult, GuardConfig, Outcome
from leadhand.models.session_environment import ClientVariables, ServerVariables, secrets_of
from leadhand.models.text import render_terminal

#: Changes of the working tree, without the repository's own programs: this gate needs no approval.
#: In a submodule, its own configuration would apply.
_STATUS = (
    "git -c core.fsmonitor=false -c core.hooksPath=/dev/null status --porcelain=v1"
    " --untracked-files=all --ignore-submodules=dirty"
)
_GIT_S = 10.0
#: The end of an output that is kept, and of that what is read for it; guidance shows less.
_READ, _RENDERED = 12_000, 1_000_000
#: Seconds between two signs of life to the API, and between two looks for the end of the hook.
_RENEW_S, _LOOK_S = 20.0, 0.2
#: The credentials of a body or an operator, which a gate does not get.
_SECRETS = secrets_of(ServerVariables) | secrets_of(ClientVariables)


class HookEnded(Exception):
    """The agent ended the hook before its gates had ended."""


class Ran(NamedTuple):
    """A command's exit code, None if its time was over, and the end of its output."""

    code: int | None
    output: str


class Gates:
    """The gates of one stop.

    Args:
        folder: The project's folder, in which the commands run.
        until: When the hook must have answered, of the monotonic clock.
        event: The hook's input, which each command gets on standard input. LEADHAND_RESULT_FILE
            names a file with the agent's last message, if the input has it.
        renew: Called now and then, so that the guard knows that this hook is alive.
        say: Called with a sentence as each gate begins.
        is_ended: Whether the agent has ended the hook.
    """

    def __init__(
        self,
        config: GuardConfig,
        folder: Path,
        env: Mapping[str, str],
        *,
        event: Mapping[str, object],
        until: float,
        renew: Callable[[], None],
        say: Callable[[str], None] = lambda _: None,
        is_ended: Callable[[], bool],
    ) -> None:
        self._config = config
        self._folder = folder
        self._env = {name: value for name, value in env.items() if name not in _SECRETS}
        self._event = event
        self._until = until
        self._renew = renew
        self._say = say
        self._is_ended = is_ended
        self._ran: dict[str, Ran] = {}

    def run(self) -> tuple[GateResult, ...]:
        """Run the gates (checks) in order until one fails or times out; return the results."""
        with tempfile.NamedTemporaryFile() as said:
            message = self._event.get("last_assistant_message")
            if isinstance(message, str):
                said.write(message.encode(errors="replace"))
                said.flush()
                self._env["LEADHAND_RESULT_FILE"] = said.name
            return self._run()

    def _run(self) -> tuple[GateResult, ...]:
        results: list[GateResult] = []
        for name in self._config.names:
            self._renew()
            self._say(f"the gate {name} is run")
            began = time.monotonic()
            result = self._look(name, self._config.gate(name))
            took = round(time.monotonic() - began, 3)
            results.append(result.model_copy(update={"seconds": took}))
            if result.outcome in ("failed", "unfinished"):
                break
        return tuple(results)

    def _look(self, name: str, gate: GateConfig) -> GateResult:
        if name in AFTER and not self._in_git():
            return self._result(name, gate, "skipped", "the folder is not in a git repository")
        if name == "docs" and gate.command is None:
            return self._docs(gate)
        if gate.command is None:
            hint = f"give guard.gates.{name} a command in leadhand.toml"
            return self._result(name, gate, "skipped", f"it has no command; {hint}")
        if name in ("pr", "review"):
            return self._pull_request(name, gate)
        ran = self._command(gate.command, gate)
        if ran.code is None:
            return self._timed_out(name, gate, ran)
        outcome: Outcome = "passed" if ran.code == 0 else "failed"
        output = ran.output.strip()
        if ran.code != 0 and not output:
            output = f"exit code {ran.code}, without output"
        return self._result(name, gate, outcome, output)

    def _docs(self, gate: GateConfig) -> GateResult:
        """Fails if code has changed in the working tree and no documentation has."""
        variables = self._without_filters()
        if variables is None:
            why = "git cannot be told to run no filter of the repository"
            return self._result("docs", gate, "skipped", why)
        ran = self._command(_STATUS, gate, {**QUIET, **variables})
        paths = [_path_of(line) for line in ran.output.splitlines()]
        if ran.code != 0:
            return self._result("docs", gate, "skipped", "git status does not answer")
        docs = [path for path in paths if _matches(path, self._config.docs)]
        code = [path for path in paths if _matches(path, self._config.code) and path not in docs]
        if docs or not code:
            return self._result("docs", gate, "passed", "")
        return self._result("docs", gate, "failed", "\n".join(code[:30]))

    def _without_filters(self) -> dict[str, str] | None:
        """The variables with which git runs no filter here; None if it disobeys or fails."""
        try:
            filters = self._filters({})
            variables = without_filters(filters, self._env)
            obeys = not filters or not run_programs(self._filters(variables))
        except (OSError, subprocess.SubprocessError):
            return None
        return variables if obeys else None

    def _filters(self, variables: Mapping[str, str]) -> dict[str, str]:
        command, env = ["git", *LIST_FILTERS], {**self._env, **QUIET, **variables}
        listed = subprocess.run(  # noqa: S603 - git, with fixed arguments
            command, cwd=self._folder, env=env, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=_GIT_S, check=False,
        )  # fmt: skip
        if listed.returncode > 1:  # 1: it has none
            raise subprocess.CalledProcessError(listed.returncode, command)
        return filters_in(listed.stdout)

    def _pull_request(self, name: str, gate: GateConfig) -> GateResult:
        """`pr` fails without a pull request, `review` with one that has open comments."""
        assert gate.command is not None
        if gate.command not in self._ran:
            self._ran[gate.command] = self._command(gate.command, gate)
        facts = parse_pull_request(self._ran[gate.command])
        if name == "pr":
            return self._result(name, gate, "passed" if facts is not None else "failed", "")
        if facts is None:
            return self._result(name, gate, "skipped", "there is no pull request")
        comments = open_comments(facts)
        return self._result(name, gate, "failed" if comments else "passed", comments)

    def _timed_out(self, name: str, gate: GateConfig, ran: Ran) -> GateResult:
        if time.monotonic() >= self._until:
            return self._result(name, gate, "unfinished", ran.output)
        text = f"{ran.output}\nIt took longer than {gate.timeout_s:g} s and was ended."
        return self._result(name, gate, "failed", text)

    def _result(self, name: str, gate: GateConfig, outcome: Outcome, output: str) -> GateResult:
        own = self._config.templates
        return GateResult(
            name=name,
            outcome=outcome,
            output=output[-_READ:],
            template=f"fix-{name}" if f"fix-{name}" in own else None,
            stuck_template=f"{name}-stuck" if f"{name}-stuck" in own else None,
            limit=gate.limit,
            blocks=bool(gate.blocks),
        )

    def _in_git(self) -> bool:
        return repository_top(self._folder) is not None

    def _command(
        self, command: str, gate: GateConfig, variables: Mapping[str, str] = MappingProxyType({})
    ) -> Ran:
        """Run a command in a process group of its own, which ends with it."""
        until = min(self._until, time.monotonic() + (gate.timeout_s or 0.0))
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as given:
            given.write(json.dumps(self._event).encode(errors="replace"))
            given.seek(0)
            process = subprocess.Popen(  # noqa: S602 - a gate is the user's own shell command
                command, shell=True, cwd=self._folder, env={**self._env, **variables},
                stdin=given, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                code = self._wait(process, until)
            finally:
                _kill_group(process)
            return Ran(code, _end_of(output))

    def _wait(self, process: subprocess.Popen[bytes], until: float) -> int | None:
        renewed = time.monotonic()
        while (left := until - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(min(left, _LOOK_S))
            if self._is_ended():
                raise HookEnded("the agent ended the hook")
            if time.monotonic() - renewed >= _RENEW_S:
                self._renew()
                renewed = time.monotonic()
        return None


def parse_pull_request(ran: Ran) -> dict[str, object] | None:
    """Parses a command's JSON output to the facts of an open pull request; None if there is none.

    >>> parse_pull_request(Ran(0, '{"number": 3, "state": "OPEN"}'))
    {'number': 3, 'state': 'OPEN'}
    >>> parse_pull_request(Ran(0, "none")), parse_pull_request(Ran(1, '{"number": 3}'))
    (None, None)
    """
    try:
        facts = json.loads(ran.output) if ran.code == 0 else None
    except ValueError:
        return None
    is_open = isinstance(facts, dict) and facts and facts.get("state", "OPEN") == "OPEN"
    return facts if is_open else None


def open_comments(facts: Mapping[str, object]) -> str:
    """Describes the open comments and requested changes of a pull request; "" if there are none.

    >>> open_comments({"reviewDecision": "APPROVED"})
    ''
    >>> open_comments({"openComments": 2, "url": "https://x/3"})
    'https://x/3: 2 open comments'
    >>> open_comments({"reviewDecision": "CHANGES_REQUESTED", "reviews": [
    ...     {"state": "CHANGES_REQUESTED", "author": {"login": "ann"}, "body": "rename it"}]})
    'ann: rename it'
    """
    url = str(facts.get("url") or "the pull request")
    number = facts.get("openComments")
    if isinstance(number, int) and number > 0:
        return f"{url}: {number} open comment{'s' if number > 1 else ''}"
    if facts.get("reviewDecision") != "CHANGES_REQUESTED":
        return ""
    reviews = facts.get("reviews")
    lines = []
    for review in reviews if isinstance(reviews, list) else ():
        if isinstance(review, dict) and review.get("state") == "CHANGES_REQUESTED":
            author = review.get("author")
            login = author.get("login") if isinstance(author, dict) else "reviewer"
            lines.append(f"{login}: {review.get('body') or 'changes requested'}")
    return "\n".join(lines) or f"{url}: changes are requested"


def _path_of(line: str) -> str:
    """The path of a line of git status, the new one of a rename.

    >>> _path_of("?? a.py"), _path_of('R  old.py -> "new name.py"')
    ('a.py', 'new name.py')
    """
    path = line[3:].rpartition(" -> ")[2]
    return shlex.split(path)[0] if path.startswith('"') else path


def _matches(path: str, globs: tuple[str, ...]) -> bool:
    """Whether a path or its last name matches a glob; `*` also matches slashes."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path, one) or fnmatchcase(name, one) for one in globs)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_of(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _RENDERED))
    return render_terminal(output.read().decode(errors="replace"))[-_READ:]
