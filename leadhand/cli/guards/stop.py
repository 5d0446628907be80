"""`leadhand hook stop`: runs the gates at a stop of an agent, and answers what the guard decides.

If Leadhand is away, or a gate cannot be run, the agent may stop: a hook never holds it for a fault
of its own.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import click

from leadhand.cli.approvals import lost_guard, missed_file, why_unchecked
from leadhand.cli.guards.config import ConfigUnfit, Loaded, limits_of, load_config
from leadhand.cli.guards.gates import Gates
from leadhand.cli.guards.hooks import HookEvent
from leadhand.errors import LeadhandError
from leadhand.models.guards import AgentEvent, GateResult, GuardConfig, StopReport
from leadhand.settings import ClientSettings

if TYPE_CHECKING:
    from leadhand.models.views.shared import StopView


#: Seconds before the agent would kill the hook: for the last call, and of them to answer.
RESERVE_S, _ANSWER_S = 5.0, 1.0
#: The most seconds for a call of the API, and of them for its repetitions.
_CALL_S, _PATIENCE_S = 12.0, 2.0
_MISSED_LINES = 50


def answer_stop(event: HookEvent, env: Mapping[str, str], timeout_s: float | None) -> int:
    """Runs the gates at an agent's stop and prints the decision; on errors allows it, returns 1."""
    began = time.monotonic()
    try:
        view = _Stop(event, env).decide(began, timeout_s)
    except Exception as error:  # noqa: BLE001 - a guard never holds an agent for its own fault
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"leadhand: the stop is allowed unchecked: {text}", err=True)
        with suppress(LeadhandError, OSError):
            _note_missed(event.agent_session, env, text)
        return 1
    return 0 if view is None else print_answer(view)


def note_event(event: HookEvent, what: AgentEvent, env: Mapping[str, str]) -> None:
    """Reports an agent's event to the API; does nothing if no services run."""
    from leadhand.client.client import Client

    timeout_s, patience_s = call_times(_CALL_S)
    with reach_services(env, starts=False, patience_s=0.0) as services:
        if services is not None:
            with Client(*services, timeout_s=timeout_s, patience_s=patience_s) as client:
                client.report_event(event.agent_session, what)


def print_answer(view: StopView) -> int:
    """Prints a decision as JSON for Claude Code and Codex; nothing for a first stop that passed."""
    decision = view.decision
    if decision is None:
        click.echo(f"leadhand: {view.why}; this stop is not checked again", err=True)
        return 0
    if decision.decision == "block":
        click.echo(json.dumps({"decision": "block", "reason": decision.text}))
    elif decision.template != "complete" or view.attempt > 1:
        click.echo(json.dumps({"systemMessage": f"Leadhand: {decision.text}"}))
    return 0


class _Stop:
    """One stop of an agent."""

    def __init__(self, event: HookEvent, env: Mapping[str, str]) -> None:
        self._event = event
        self._env = env
        self._settings = ClientSettings.from_env(env)
        self._name = uuid.uuid4().hex
        self._services = Services("", None)
        #: When the answer must be there, of the monotonic clock.
        self._until = 0.0

    def decide(self, began: float, timeout_s: float | None) -> StopView | None:
        """Run the gates if the guard asks for them, and get its decision.

        None where no file has a `[guard]` and no services run: none are started for that.
        """
        loaded, why = _load(self._event, self._env)
        allowed_s = timeout_s if timeout_s is not None else hook_timeout_s(loaded.config.total_s)
        self._until = began + allowed_s - _ANSWER_S
        left_s = self._until - time.monotonic()
        starts = loaded.file is not None or why is not None
        with reach_services(self._env, starts=starts, patience_s=left_s) as services:
            if services is None:
                return None
            self._services = services
            return self._check(loaded) if why is None else self._unchecked(loaded, why)

    def _check(self, loaded: Loaded) -> StopView:
        if self._settings.guard_stage_max is not None:
            loaded = loaded._replace(
                config=loaded.config.with_limit(self._settings.guard_stage_max)
            )
        missed = _read_missed(self._event.agent_session, self._env)
        view = self._report(loaded, missed=missed)
        if view.state == "run":
            try:
                with _noting_end() as is_ended:
                    gates = self._gates(loaded, is_ended)
            except Exception as error:  # noqa: BLE001 - as above
                return self._unchecked(loaded, f"the gates could not be run: {error}")
            view = self._report(loaded, gates=gates, missed=missed)
        _forget_missed(self._event.agent_session, self._env)
        return view

    def _gates(self, loaded: Loaded, is_ended: Callable[[], bool]) -> tuple[GateResult, ...]:
        until = self._until + _ANSWER_S - RESERVE_S

        def renew() -> None:
            if until - time.monotonic() < _CALL_S:
                return  # it could take the time of the decision
            with suppress(LeadhandError):
                self._report(loaded)

        return Gates(
            loaded.config,
            loaded.folder,
            self._env,
            event=self._event.fields,
            until=until,
            renew=renew,
            say=_say_to_person,
            is_ended=is_ended,
        ).run()

    def _unchecked(self, loaded: Loaded, why: str) -> StopView:
        """Have a stop recorded that is allowed although no gate was asked."""
        click.echo(f"leadhand: the stop is allowed unchecked: {why}", err=True)
        return self._report(loaded, unchecked=why[:2000])

    def _report(self, loaded: Loaded, **more: object) -> StopView:
        fields: dict[str, object] = {
            "stop": self._name,
            "prompt_id": self._event.prompt_id,
            "is_first": not self._event.is_continued,
            "limits": limits_of(loaded.config, self._settings, self._env),
            "templates": loaded.config.templates,
        }
        report = StopReport.model_validate(
            fields | {k: v for k, v in more.items() if v is not None}
        )
        from leadhand.client.client import Client
        from leadhand.contract.here import Here

        timeout_s, patience_s = call_times(self._until - time.monotonic())
        url, token = self._services
        here = Here(folder=loaded.folder.resolve())
        with Client(
            url, token, timeout_s=timeout_s, patience_s=patience_s, say=_say_to_person, here=here
        ) as client:
            return client.report_stop(self._event.agent_session, report)


def hook_timeout_s(gates_s: float) -> float:
    """Returns the timeout of the Stop hook in seconds: 30 more than its gates may take together."""
    return gates_s + 30.0


def _load(event: HookEvent, env: Mapping[str, str]) -> tuple[Loaded, str | None]:
    """The project's configuration and folder, and why its gates may not decide, if they may not."""
    try:
        loaded = load_config(event.folder, env)
    except ConfigUnfit as error:
        return Loaded(GuardConfig(), folder=error.folder), str(error)
    lost = lost_guard(loaded, env)
    folder = loaded.folder if lost is None else lost.parent
    return loaded._replace(folder=folder), why_unchecked(loaded, env)


def call_times(left_s: float) -> tuple[float, float]:
    """Splits at most 12 of the seconds left into a call's timeout and the time for its retries.

    >>> call_times(60), call_times(3)
    ((10.0, 2.0), (2.5, 0.5))
    """
    whole = max(0.2, min(left_s, _CALL_S))
    patience = whole * _PATIENCE_S / _CALL_S
    return whole - patience, patience


def _say_to_person(text: str) -> None:
    """Print a message at a terminal; an agent may show only the first line of the hook's errors."""
    from leadhand.cli.connect import tell

    if sys.stderr.isatty():
        tell(text)


@contextmanager
def _noting_end() -> Iterator[Callable[[], bool]]:
    """Within this `with`, SIGTERM only sets what the returned function tells."""
    ended = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ended
        ended = True

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield lambda: ended
    finally:
        signal.signal(signal.SIGTERM, before)


def _note_missed(agent_session: str, env: Mapping[str, str], why: str) -> None:
    """Remember a stop that could not be recorded; it is sent with the next one."""
    line = " ".join(f"{datetime.now(UTC):%FT%TZ} allowed unchecked: {why}".split())
    with missed_file(agent_session, env).open("a", encoding="utf-8") as file:
        file.write(line[:500] + "\n")


def _read_missed(agent_session: str, env: Mapping[str, str]) -> tuple[str, ...]:
    try:
        text = missed_file(agent_session, env).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return tuple(line[:500] for line in text.splitlines() if line)[-_MISSED_LINES:]


def _forget_missed(agent_session: str, env: Mapping[str, str]) -> None:
    missed_file(agent_session, env).unlink(missing_ok=True)


class Services(NamedTuple):
    """The URL and token of an API."""

    url: str
    token: str | None


@contextmanager
def reach_services(
    env: Mapping[str, str], *, starts: bool, patience_s: float
) -> Iterator[Services | None]:
    """Yields the API's URL and token, with `starts` after starting services; None if none run.

    With `starts` they are started, for which they have `patience_s`. They stay up until the end of
    the `with`.
    """
    settings = ClientSettings.from_env(env)
    if settings.url is not None:
        yield Services(settings.url, settings.token)
        return
    from leadhand.cli.connect import tell
    from leadhand.local.connect import ensure, join
    from leadhand.local.user_state import state_folder

    home = state_folder(env)
    connection = (
        ensure(home, say=tell, env=env, patience_s=patience_s) if starts else join(home, env=env)
    )
    if connection is None:
        yield None
        return
    with connection:
        yield Services(connection.url, connection.token)
