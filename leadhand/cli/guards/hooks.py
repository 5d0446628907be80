"""`leadhand hook`: shows an agent its messages, guards its stops, and installs its hooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from leadhand.cli.group import Group
from leadhand.cli.guards.command import Agent, with_guard, without_guard
from leadhand.cli.render.tables import plural
from leadhand.models.guards import AgentEvent
from leadhand.models.patterns import AGENT_SESSION

if TYPE_CHECKING:
    from leadhand.cli.guards.config import Loaded
    from leadhand.models.views.explain import InboxMessage

_SCOPES = ("local", "project", "user")
#: Events of Claude Code whose hooks may add to the context.
_ADDS_CONTEXT = ("UserPromptSubmit", "SessionStart")
_session = click.option(
    "--session", metavar="ID", help="The session whose messages these are. [LEADHAND_SESSION]"
)
#: A notification of Claude Code that it waits for its user, by its type or its text.
_IDLE = ("idle_prompt", "waiting for your input")


@click.group("hook", cls=Group)
def hook_command() -> None:
    """Show an agent its messages, and guard its stops.

    Each command but install and trust reads the hook's JSON on standard input.
    """


@hook_command.command("stop")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=6), metavar="S",
    help="When the agent ends this hook; by default the timeouts of the gates together.",
)  # fmt: skip
def stop_command(*, timeout_s: float | None) -> int:
    """For Stop: run the gates, then let the agent stop or block it with guidance.

    It allows the stop, warns and exits with 1 if Leadhand is away.
    """
    from leadhand.cli.guards.stop import answer_stop
    from leadhand.settings import environment

    env = environment()
    return answer_stop(_read(env), env, timeout_s)


@hook_command.command("event")
def event_command() -> int:
    """For UserPromptSubmit, Notification and SessionEnd: report the event to the agent's guard."""
    from leadhand.cli.guards.stop import note_event
    from leadhand.settings import environment

    env = environment()
    event = _read(env)
    what = event.as_agent_event()
    if what is not None:
        note_event(event, what, env)
    return 0


@hook_command.command("install")
@click.argument("agent", type=click.Choice(get_args(Agent)))
@click.option(
    "--scope", type=click.Choice(_SCOPES), default="local", show_default=True,
    help="Your settings of this folder, the folder's own, or yours for all folders.",
)  # fmt: skip
@click.option("--remove", is_flag=True, help="Take the hooks out again.")
@click.option("--yes", is_flag=True, help="Approve the gates' commands without a question.")
def install_command(*, agent: Agent, scope: str, remove: bool, yes: bool) -> int:
    """Write the hooks of a Stop guard into the settings of AGENT, or remove them.

    The commands of the gates and the whole leadhand.toml are shown, and run once you approve them.
    """
    from leadhand.cli.guards.config import load_config
    from leadhand.cli.guards.stop import hook_timeout_s
    from leadhand.settings import environment

    env = environment()
    file = settings_file(agent, scope, Path.cwd(), env)
    settings = _read_settings(file)
    if remove:
        changed = without_guard(settings)
        _write_settings(file, changed)
        click.echo(f"no hooks of Leadhand are left in {file}")
        return 0
    loaded = load_config(Path.cwd(), env)
    _let_go(loaded, env, yes=yes)
    _approve(loaded, env, yes=yes)
    timeout_s = hook_timeout_s(loaded.config.total_s)
    _write_settings(file, with_guard(settings, agent, _program(), timeout_s))
    click.echo(f"wrote the hooks to {file}; the agent may take {timeout_s:g} s for each stop")
    if agent == "codex":
        click.echo("Codex asks once whether it may run them; `/hooks` lists them there")
    return 0


@hook_command.command("trust")
@click.option("--yes", is_flag=True, help="Approve without a question.")
def trust_command(*, yes: bool) -> int:
    """Approve this folder's leadhand.toml as it is now, also if its gates were removed."""
    from leadhand.cli.guards.config import load_config
    from leadhand.models.folder_settings import FILE
    from leadhand.settings import environment

    env = environment()
    loaded = load_config(Path.cwd(), env)
    if not _let_go(loaded, env, yes=yes) and loaded.is_own:
        raise click.ClickException(
            f"{Path.cwd() / FILE} has no [guard]; there is nothing to approve"
        )
    if not loaded.is_own:
        _approve(loaded, env, yes=yes)
    return 0


def settings_file(agent: Agent, scope: str, folder: Path, env: Mapping[str, str]) -> Path:
    """Returns the path of the settings file with an agent's hooks: the user's or the project's."""
    home = Path(env.get("HOME") or Path.home())
    if agent == "codex":
        base = (
            Path(env.get("CODEX_HOME") or home / ".codex") if scope == "user" else folder / ".codex"
        )
        return base / "hooks.json"
    if scope == "user":
        return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"
    name = "settings.json" if scope == "project" else "settings.local.json"
    return folder / ".claude" / name


def _let_go(loaded: Loaded, env: Mapping[str, str], *, yes: bool) -> bool:
    """Forget an approved guard that was removed, if the user agrees; False if there is none."""
    from leadhand.cli.approvals import lost_guard, withdraw

    lost = lost_guard(loaded, env)
    if lost is None:
        return False
    click.echo(f"{lost} has no [guard] any more, which you had approved")
    if not yes and not click.confirm("May agents stop without it?"):
        raise click.ClickException("nothing was changed; put the guard back")
    withdraw(lost, env)
    click.echo("agents may stop without it")
    return True


def _approve(loaded: Loaded, env: Mapping[str, str], *, yes: bool) -> None:
    """Show the commands of a folder's file, and record that the user approves them."""
    from leadhand.cli.approvals import approve, is_trusted, show_whole
    from leadhand.models.approvals import digest_of
    from leadhand.models.pipelines import hidden_exit_code
    from leadhand.models.text import plain

    for name in loaded.config.names:
        command = loaded.config.gate(name).command
        shown = plain(command) if command else "git status" if name == "docs" else "no command"
        click.echo(f"{name}: {shown}")
        hidden = hidden_exit_code(command or "")
        if hidden is not None:
            click.echo(f"warning: {plain(hidden, most=400)}", err=True)
    if loaded.file is None or is_trusted(loaded, env):
        return
    show_whole({loaded.file: loaded.text})  # the approval is for all commands in it
    if not yes and not click.confirm(f"May Leadhand run the commands of {loaded.file}?"):
        raise click.ClickException("the commands are not approved; nothing was changed")
    approve({loaded.file: digest_of(loaded.text)}, env)
    click.echo(f"approved {loaded.file} as it is now")


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise click.ClickException(f"{file} is not JSON: {error}; correct it first") from None
    if not isinstance(settings, dict):
        raise click.ClickException(f"{file} is not a JSON object; correct it first")
    return settings


def _write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Replace a settings file at once, that of a link in its place; no empty one is made."""
    target = file.resolve()
    if not settings and not target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    draft.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.chmod(mode)
    draft.replace(target)


def _program() -> str:
    """The path of this program, which an agent may not have on its PATH."""
    beside = Path(sys.executable).with_name("leadhand")
    return str(beside) if beside.exists() else shutil.which("leadhand") or "leadhand"


def _read(env: Mapping[str, str]) -> HookEvent:
    """The hook's JSON on standard input."""
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    try:
        fields = json.loads(text or "{}")
        if isinstance(fields, dict):
            return parse_event(fields, env)
    except EventUnfit as error:
        raise click.ClickException(str(error)) from None
    except ValueError:
        pass
    raise click.ClickException("standard input is not the JSON object of a hook")


@hook_command.command("prompt")
@_session
def prompt_command(*, session: str | None) -> int:
    """For UserPromptSubmit and SessionStart: add unread messages to the context; mark them read.

    Without a session it prints nothing, so that one hook serves all folders.
    """
    from leadhand.cli.connect import open_client

    event = str(_read_event().get("hook_event_name") or _ADDS_CONTEXT[0])
    if event not in _ADDS_CONTEXT:
        raise click.ClickException(
            f"hook_event_name is {event!r}: use `leadhand hook prompt` for UserPromptSubmit"
        )
    session = session or _own_session()
    if session is None:
        return 0
    with open_client(outlives_attempt=True, needs_worker=True) as client:
        messages = client.take_messages(session)  # more than one turn can read wait for the next
    if messages:
        context = context_of(session, messages)
        output = {"hookEventName": event, "additionalContext": context}
        click.echo(json.dumps({"hookSpecificOutput": output}))
    return 0


@hook_command.command("notification")
@_session
def notification_command(*, session: str | None) -> int:
    """For Notification: show the user how many messages are unread; they stay unread."""
    from leadhand.cli.connect import open_client

    _read_event()
    session = session or _own_session()
    if session is None:
        return 0
    with open_client(outlives_attempt=True, needs_worker=True) as client:
        messages = client.inbox(session, unread=True, limit=100).items
    if messages:
        newest = messages[-1]
        first_line = newest.text.strip().splitlines()[0][:200]
        text = (
            f"{plural(len(messages), 'unread message')} of session {session};"
            f" the newest is of {newest.sender}: {first_line}"
        )
        click.echo(json.dumps({"systemMessage": text}))
    return 0


def context_of(session: str, messages: Sequence[InboxMessage]) -> str:
    """Formats inbox messages as text that is added to an agent's context."""
    parts = [f"Messages to Leadhand session {session} since your last turn:"]
    for message in messages:
        mark = ", which reports a failure" if message.escalates else ""
        head = f"Message {message.id}: {message.kind} from {message.sender}{mark}, {message.at}"
        parts.append(f"{head}\n{message.text.strip()}")
    return "\n\n".join(parts)


def _read_event() -> dict[str, object]:
    """The hook's JSON on standard input; empty at a terminal."""
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    try:
        event = json.loads(text or "{}")
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise click.ClickException("standard input is not the JSON object of a hook")
    return event


def _own_session() -> str | None:
    from leadhand.settings import ClientSettings

    return ClientSettings.from_env().session


class HookEvent(NamedTuple):
    """A hook's input, as far as guards need it."""

    name: str
    agent_session: str
    #: The user's prompt: Claude Code's prompt_id, or Codex's turn_id.
    prompt_id: str | None
    #: Whether a hook has blocked a stop of this prompt before.
    is_continued: bool
    folder: Path
    fields: Mapping[str, object]

    def as_agent_event(self) -> AgentEvent | None:
        """Convert a hook's event to the event for a guard: prompt, idle or end; None for others."""
        if self.name == "UserPromptSubmit":
            return AgentEvent(event="prompt", prompt_id=self.prompt_id)
        if self.name == "SessionEnd":
            return AgentEvent(event="end")
        text = f"{self.fields.get('notification_type')} {self.fields.get('message')}"
        if self.name == "Notification" and any(word in text for word in _IDLE):
            return AgentEvent(event="idle")
        return None


class EventUnfit(ValueError):
    """Standard input is not the JSON of a hook that a guard understands."""


def parse_event(fields: Mapping[str, object], env: Mapping[str, str]) -> HookEvent:
    """Parses the fields that an agent passes to a hook. Raises EventUnfit for a bad session id.

    >>> event = parse_event({"session_id": "s-1", "hook_event_name": "Stop", "cwd": "/w"}, {})
    >>> event.agent_session, event.prompt_id, event.is_continued, str(event.folder)
    ('s-1', None, False, '/w')
    """
    session = str(fields.get("session_id") or "")
    if not re.fullmatch(AGENT_SESSION, session):
        raise EventUnfit(f"session_id is {session!r}: a hook's JSON names the agent's session")
    prompt = fields.get("prompt_id") or fields.get("turn_id")
    folder = env.get("CLAUDE_PROJECT_DIR") or str(fields.get("cwd") or ".")
    return HookEvent(
        name=str(fields.get("hook_event_name") or ""),
        agent_session=session,
        prompt_id=None if prompt is None else str(prompt)[:128],
        is_continued=fields.get("stop_hook_active") is True,
        folder=Path(folder),
        fields=fields,
    )
