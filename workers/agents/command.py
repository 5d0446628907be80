"""Runs an agent that is a program and parses its output."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from app.core.outcomes import Outcome, Thread
from app.truncate import cut
from leadhand.models.verdicts import ReasonCode
from workers.agents.codex import codex_home
from workers.agents.output_parser import OutputParser
from workers.agents.question import Answer, Question
from workers.processes.exit_outcome import failed_outcome, failure
from workers.processes.process import Command, ProcessResult, run
from workers.processes.user_folders import claim_session_folder, create_file
from workers.registry.errors import OutputUnreadable

#: Characters of an agent's own error message that the reason quotes.
_MESSAGE_LIMIT = 2_000
#: The name of the server: an agent calls its tools `mcp__leadhand__...`.
SERVER = "leadhand"
_FILE = "mcp.json"
#: The variables of a body that the server needs. Codex passes on only those that are named.
_VARIABLES = (
    "LEADHAND_URL", "LEADHAND_TOKEN", "LEADHAND_SESSION", "LEADHAND_STEP", "LEADHAND_ITERATION",
    "LEADHAND_PLACE",
)  # fmt: skip
#: Seconds that Codex waits for a tool; `wait_session` takes up to 600.
_TOOL_TIMEOUT_S = 630
#: Seconds that Codex waits for the server to start; the machine may be busy.
_STARTUP_TIMEOUT_S = 120


def ask_program(question: Question, cancel: threading.Event) -> Answer:
    """Run the agent's program on the prompt and return its answer."""
    task, agent, thread_before = question.task, question.agent, question.thread_before
    own = task.inherit(agent.variables)
    parser = OutputParser(
        agent,
        before=thread_before.told,
        on_spent=task.on_spent,
        codex_home=codex_home(own),
        live=task.live,
    )
    with config_file(task.spill, wanted=agent.takes_mcp_config) as mcp_config:
        argv = agent.argv(
            prompt=question.prompt,
            model=question.model,
            thread=thread_before.id,
            role=question.role,
            mcp_config=mcp_config,
            mcp_args=codex_args(wanted=agent.takes_mcp_args),
        )
        command = task.command(
            argv,
            prompt=question.prompt,
            feeds_prompt=not agent.takes_prompt_as_argument,
            timeout_s=question.timeout_s,
            variables=agent.variables,
            on_output=parser.write,
            shows_stdout=agent.output == "text",
        )
        command = replace(command, is_stuck=parser.is_stuck)
        answer = run_and_parse(question, command, parser, cancel)
    thread = Thread(conversation="", id=parser.thread, told=parser.conversation_usage)
    remembered = thread if agent.remembers and thread.id is not None else None
    return replace(answer, thread=question.next_thread(thread), own_thread=remembered)


def run_and_parse(
    question: Question, command: Command, parser: OutputParser, cancel: threading.Event
) -> Answer:
    """Run a command and parse its output; a failure is returned in the answer, not raised."""
    result = run(command, cancel)
    text, unreadable = "", None
    try:
        text = parser.answer(result.stdout)
    except OutputUnreadable as error:
        unreadable = _unreadable(question.who, parser, error, result)
    bad = failure(result, who=question.who, timeout_s=command.timeout_s, message=parser.failure)
    bad = _with_hint(bad, result) if bad is not None else unreadable
    ended = result.cancelled or result.timed_out
    if bad is not None and parser.busy is not None and not ended:
        bad = bad.model_copy(update={"busy": parser.busy, "retryable": True})
    return Answer(
        question.name,
        question.prompt,
        result,
        text=cut(text, parser.limit),
        whole=text,
        failure=bad,
        usage=parser.usage,
        final=parser.final,
        tools=parser.activity.calls,
        tools_failed=parser.activity.tools_failed,
    )


def _unreadable(
    who: str, parser: OutputParser, error: OutputUnreadable, result: ProcessResult
) -> Outcome:
    """The failure of an agent that reported an error, or whose output cannot be parsed."""
    if parser.failure is not None:
        text = f"{who} failed: {cut(parser.failure, _MESSAGE_LIMIT)}"
        return failed_outcome(ReasonCode.FAILED_STEP, text, result=result)
    text = f"{who} gave no readable answer: {error}"
    return failed_outcome(ReasonCode.INVALID_ANSWER, text, result=result)


_HINTS = {
    "program": "; install it on the worker's PATH, or set its command in agents.toml",
    "permission": "; make it executable (chmod +x), or put its interpreter first in the command",
    "room": ": leave {prompt} out of its command to get the prompt there",
}


def _with_hint(bad: Outcome, result: ProcessResult) -> Outcome:
    """The failure, with a hint to fix it if the program could not start."""
    if bad.reason is None or result.lacks is None or result.lacks not in _HINTS:
        return bad
    reason = bad.reason.model_copy(update={"text": bad.reason.text + _HINTS[result.lacks]})
    return bad.model_copy(update={"reason": reason})


@contextmanager
def config_file(spill: Path, *, wanted: bool) -> Iterator[str]:
    """Yields the path of a temporary file that configures the MCP server, then deletes it.

    The path is "" if the file is not `wanted`.
    """
    if not wanted:
        yield ""
        return
    # Claude Code waits for a server that is always loaded, before the first turn.
    server = {"type": "stdio", **_command(), "alwaysLoad": True}
    claim_session_folder(spill)
    path = spill / _FILE
    try:
        with create_file(path) as file:
            file.write(json.dumps({"mcpServers": {SERVER: server}}).encode())
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def codex_args(*, wanted: bool) -> tuple[str, ...]:
    """Returns the arguments that configure the MCP server for Codex."""
    if not wanted:
        return ()
    settings = {
        **_command(),
        "env_vars": _VARIABLES,
        "tool_timeout_sec": _TOOL_TIMEOUT_S,
        # Codex waits for it before the first turn; otherwise that turn would have no tools of it.
        "required": True,
        "startup_timeout_sec": _STARTUP_TIMEOUT_S,
        # No person can approve a call.
        "default_tools_approval_mode": "approve",
    }
    # JSON strings, numbers and lists of strings are TOML, too.
    pairs = [f"mcp_servers.{SERVER}.{name}={json.dumps(one)}" for name, one in settings.items()]
    return tuple(part for pair in pairs for part in ("-c", pair))


def _command() -> dict[str, str | list[str]]:
    return {"command": sys.executable, "args": ["-P", "-m", "leadhand", "mcp"]}
