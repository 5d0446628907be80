"""Runs a tool that is an entry of tools.toml: a command or an HTTP request."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from urllib.parse import quote

from pydantic import JsonValue

from app.core.outcomes import Outcome
from app.truncate import cut
from leadhand.graphs.faults import CONNECTION, http_error
from leadhand.models.tool_schemas import convert
from leadhand.models.verdicts import ReasonCode
from workers.agents.output_parser import TEXT_LIMIT
from workers.processes.exit_outcome import (
    add_process_facts,
    failed_outcome,
    failure,
    mark_retryable,
)
from workers.processes.process import Command, run
from workers.registry.tool_book import why_unusable
from workers.registry.tool_entry import (
    DeclaredTool,
    Form,
    McpServer,
    OptionRefused,
    argv_of,
    as_text,
    fill,
)
from workers.registry.tool_servers import ServedTool, ServerState
from workers.task import BodyTask, ToolInputs
from workers.tool_servers.manager import Called, call

#: Bytes of the child's answer, which holds a response of at most 4 MiB.
_ANSWER_BYTES = 32 * 1024 * 1024
#: Characters of an error's response that the reason quotes.
_QUOTED = 2_000
#: Statuses after which the same request may succeed. A step's `retry_on` names others.
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Bytes of a command's output that become its result.
RESULT_BYTES = 4 * 1024 * 1024
#: How often a call is sent again to a server that ended during it.
_AGAIN = 2


def outcome_of(value: JsonValue, *, printed: str = "") -> Outcome:
    """Builds the succeeded outcome of a tool that returned this value; if None, of its output."""
    if value is None:
        text = printed
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Outcome(word="succeeded", value=value, text=cut(text, TEXT_LIMIT))


def declined(outcome: Outcome, who: str) -> Outcome:
    """Marks the outcome as failed if the tool's result has ``"success": false``."""
    value = outcome.value
    if outcome.word != "succeeded" or not isinstance(value, dict):
        return outcome
    if value.get("success") is not False:
        return outcome
    failed = failed_outcome(
        ReasonCode.FAILED_STEP, f"{who} reported a failure: {why_declined(value)}", retryable=True
    )
    kept = {"value": value, "exit_code": outcome.exit_code, "spill": outcome.spill}
    return failed.model_copy(update=kept)


def why_declined(value: dict[str, JsonValue]) -> str:
    """Returns the error message in a tool's result, or the whole result as JSON."""
    message = value.get("error") or value.get("message")
    return cut(str(message) if message else json.dumps(value, ensure_ascii=False), TEXT_LIMIT)


def refuse_repeat(task: BodyTask, who: str, *, may_repeat: bool) -> Outcome | None:
    """Returns a failure if a lost attempt may have made the same call; None if it may be made.

    The step has no retries, so an earlier attempt can only have been lost.
    """
    if may_repeat or task.retries > 0 or task.attempt <= 1:
        return None
    text = (
        f"{who} may have run in the attempt that was lost, and is not called again: it is not"
        " marked idempotent and the step has no retries. Look at what it did, then resume"
    )
    return failed_outcome(ReasonCode.LOST, text)


class ArgumentUnfit(ValueError):
    """An argument cannot be a part of the URL."""


def send(
    task: BodyTask,
    who: str,
    entry: DeclaredTool,
    arguments: Mapping[str, JsonValue],
    *,
    timeout_s: float,
    cancel: threading.Event,
) -> Outcome:
    """Send the HTTP request of a tool in another process; return the outcome, also a failure."""
    try:
        request = request_of(entry, arguments)
    except ArgumentUnfit as error:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {error}")
    fields: dict[str, JsonValue] = {**request, "hosts": [*task.tool_hosts]}
    fields |= {"timeout_s": timeout_s, "key": f"{task.session}:{task.address}"}
    command = task.command(
        (sys.executable, "-P", "-m", "leadhand.serve", "request"),
        prompt=json.dumps(fields),
        timeout_s=timeout_s,
        variables=entry.variables,
        shows_stdout=False,
    )
    result = run(command, cancel)
    bad = failure(result, who=who, timeout_s=timeout_s)
    if bad is not None:
        return bad
    try:
        answer = json.loads(result.stdout.whole(_ANSWER_BYTES))
    except ValueError:
        text = f"{who} ended its process before the server responded"
        return failed_outcome(ReasonCode.FAILED_STEP, text, result=result, retryable=True)
    return add_process_facts(_outcome(who, entry, answer), result).model_copy(
        update={"exit_code": None, "spill": None}
    )


def request_of(entry: DeclaredTool, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Builds the HTTP request of a tool with its arguments. Raises ArgumentUnfit."""
    assert entry.url is not None
    parts = {name: _segment(name, arguments.get(name)) for name in entry.url_arguments}
    rest = {name: value for name, value in arguments.items() if name not in parts}
    found: dict[str, JsonValue] = {
        "method": entry.verb,
        "url": fill(entry.url, parts.__getitem__),
        "headers": dict(entry.headers),
    }
    if entry.sends == "json":
        return {**found, "json": rest}
    texts: dict[str, JsonValue] = {
        name: [as_text(one) for one in value] if isinstance(value, list) else as_text(value)
        for name, value in rest.items()
        if value is not None
    }
    return {**found, "form" if entry.sends == "form" else "query": texts}


def _segment(name: str, value: JsonValue) -> str:
    """A value as a part of the URL, in which no character has a meaning."""
    text = "" if value is None else as_text(value)
    if text in (".", ".."):
        raise ArgumentUnfit(
            f"argument {name!r}: {text!r} would change the path; give another value"
        )
    return quote(text, safe="")


def _outcome(who: str, entry: DeclaredTool, answer: Mapping[str, JsonValue]) -> Outcome:
    if "failed" in answer:
        text = f"{who} failed: {answer['failed']}"
        is_transient = answer.get("may_retry") is True
        code = ReasonCode.TIMEOUT if answer.get("timed_out") is True else ReasonCode.FAILED_STEP
        failed = failed_outcome(code, text, retryable=is_transient)
        is_broken = answer.get("is_broken") is True
        return failed.model_copy(update={"errors": CONNECTION}) if is_broken else failed
    status, body = answer.get("status"), str(answer.get("text", ""))
    assert isinstance(status, int)
    if 300 <= status < 400:
        where = f" to {answer['location']}" if answer.get("location") else ""
        text = f"{who} failed: the server redirects{where} ({status}); write that url in the entry"
        return _status_failure(text, status, body)
    if status >= 400:
        quoted = f": {cut(body.strip(), _QUOTED)}" if body.strip() else ""
        text = f"{who} failed: the server responded {status}{quoted}"
        return _status_failure(text, status, body)
    if entry.output == "text" or (entry.output is None and answer.get("is_json") is not True):
        return outcome_of(body)
    try:
        value: JsonValue = json.loads(body) if body else None
    except ValueError as error:
        why = f"{who} failed: the response is no JSON ({error}): {cut(body, 500)}"
        return failed_outcome(ReasonCode.INVALID_ANSWER, why, retryable=True)
    return outcome_of(value)


def _status_failure(text: str, status: int, body: str) -> Outcome:
    failed = failed_outcome(ReasonCode.FAILED_STEP, text, retryable=status in _TRANSIENT)
    value: JsonValue = {"status": status, "body": cut(body, _QUOTED)}
    return failed.model_copy(update={"value": value, "errors": (http_error(status),)})


def use_declared(
    task: BodyTask, inputs: ToolInputs, entry: DeclaredTool, cancel: threading.Event
) -> Outcome:
    """Checks the arguments of a tool of tools.toml, runs it and returns the outcome or failure."""
    who = f"tool {inputs.tool!r}"
    missing = why_unusable(entry, {**task.inherited, **task.session_environment.passed})
    if missing is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who} cannot be used here: {missing}")
    arguments, wrong = convert(entry.json_schema, inputs.arguments)
    if wrong is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {wrong}")
    lost = refuse_repeat(task, who, may_repeat=entry.may_repeat)
    if lost is not None:
        return lost
    timeout_s = min(task.timeout_s, entry.timeout_s or task.timeout_s)
    if entry.url is not None:
        return send(task, who, entry, arguments, timeout_s=timeout_s, cancel=cancel)
    return _run_command(task, who, entry, arguments, timeout_s, cancel)


def _run_command(
    task: BodyTask,
    who: str,
    entry: DeclaredTool,
    arguments: Mapping[str, JsonValue],
    timeout_s: float,
    cancel: threading.Event,
) -> Outcome:
    try:
        command = _command(task, entry, arguments, timeout_s)
    except OptionRefused as error:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {error}")
    result = run(command, cancel)
    bad = failure(result, who=who, timeout_s=timeout_s)
    if bad is not None:
        return mark_retryable(bad, result)
    size = result.stdout.size
    if size > RESULT_BYTES:
        text = (
            f"{who} printed {size:,} bytes; a result has at most {RESULT_BYTES:,}, so write a file"
        )
        return failed_outcome(ReasonCode.FAILED_STEP, text, result=result)
    text = result.stdout.whole(RESULT_BYTES)
    if entry.output != "json":
        return add_process_facts(outcome_of(text.strip()), result)
    try:
        value: JsonValue = json.loads(text)
    except ValueError as error:
        why = f"{who} printed no JSON ({error}): {cut(text.strip(), 500)}"
        return failed_outcome(ReasonCode.INVALID_ANSWER, why, result=result, retryable=True)
    return add_process_facts(outcome_of(value), result)


def _command(
    task: BodyTask, entry: DeclaredTool, arguments: Mapping[str, JsonValue], timeout_s: float
) -> Command:
    """The command line of a call. Raises OptionRefused."""
    assert entry.command is not None
    line = tuple(part.replace("\0", "\N{REPLACEMENT CHARACTER}")
                 for part in argv_of(entry.command, arguments))  # fmt: skip
    feeds = entry.feeds_arguments
    return task.command(
        line,
        prompt=json.dumps(arguments, ensure_ascii=False) if feeds else None,
        timeout_s=timeout_s,
        variables=entry.variables,
    )


def use_served(
    task: BodyTask, inputs: ToolInputs, server: str, entry: McpServer, cancel: threading.Event
) -> Outcome:
    """Check the arguments and call the tool of an MCP server; `isError` is a failure."""
    who, name = f"tool {inputs.tool!r}", inputs.tool.partition(".")[2]
    state = task.shelf.served.state(server)
    tool = next((one for one in state.tools if one.name == name), None)
    if tool is None and state.tools:
        return failed_outcome(ReasonCode.FAILED_STEP, _no_tool(server, name, state))
    if tool is not None and tool.why_not is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {tool.why_not}")
    arguments, wrong = _converted(tool, inputs.arguments)
    if wrong is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {wrong}")
    may_repeat = entry.may_repeat(name) or (tool is not None and tool.repeats)
    lost = refuse_repeat(task, who, may_repeat=may_repeat)
    if lost is not None:
        return lost
    timeout_s = min(task.timeout_s, entry.timeout_s or task.timeout_s)
    called = _call(task, server, name, arguments, timeout_s, cancel, may_repeat=may_repeat)
    outcome = _served_outcome(who, server, called, timeout_s, entry.form_of(name))
    return declined(outcome, who)


def _converted(
    tool: ServedTool | None, given: dict[str, JsonValue]
) -> tuple[dict[str, JsonValue], str | None]:
    """The arguments as the tool's schema has them; the server fills in its own defaults."""
    if tool is None or not tool.input_schema.get("properties"):
        return given, None
    found, wrong = convert(tool.input_schema, given)
    return {name: value for name, value in found.items() if name in given}, wrong


def _call(
    task: BodyTask,
    server: str,
    name: str,
    arguments: dict[str, JsonValue],
    timeout_s: float,
    cancel: threading.Event,
    *,
    may_repeat: bool,
) -> Called:
    """Call the tool; again if its server ended and a second call changes nothing more."""
    deadline = time.monotonic() + timeout_s
    for left in range(_AGAIN if may_repeat else 0, -1, -1):
        called = call(
            lambda: task.shelf.served.state(server),
            name,
            arguments,
            timeout_s=max(0.0, deadline - time.monotonic()),
            cancel=cancel,
            until=task.until,
        )
        if called.end != "closed" or left == 0:
            return called
    raise AssertionError


def _served_outcome(who: str, server: str, called: Called, timeout_s: float, form: Form) -> Outcome:
    match called.end:
        case "cancelled":
            return failed_outcome(ReasonCode.CANCELLED, f"{who} was cancelled")
        case "timed_out":
            text = f"{who} timed out after {timeout_s:g} seconds"
            return failed_outcome(ReasonCode.TIMEOUT, text, retryable=True)
        case "away":
            return _unreached(f"{who} could not be called: server {server!r} is away: {called.why}")
        case "closed":
            return _unreached(
                f"{who} failed: server {server!r} ended during the call: {called.why}"
            )
        case "refused":
            text = f"{who} failed: {called.why}"
            return failed_outcome(ReasonCode.FAILED_STEP, text, retryable=True)
        case None:
            return _of_result(who, called, form)


def _of_result(who: str, called: Called, form: Form) -> Outcome:
    """The outcome of a call that the server answered."""
    if called.is_error:
        text = f"{who} reported a failure: {cut(called.text, TEXT_LIMIT) or 'it gives no reason'}"
        failed = failed_outcome(ReasonCode.FAILED_STEP, text, retryable=True)
        value = called.value if called.has_value else called.text
        return failed.model_copy(update={"value": value})
    if called.has_value:
        return outcome_of(called.value)
    return _of_json(who, called.text) if form == "json" else outcome_of(called.text)


def _of_json(who: str, text: str) -> Outcome:
    """The value of a text that is JSON; none for an empty text."""
    try:
        return outcome_of(json.loads(text) if text else None)
    except (ValueError, RecursionError) as error:
        why = f"{who} returned no JSON ({error}): {cut(text, 500)}"
        return failed_outcome(ReasonCode.INVALID_ANSWER, why, retryable=True)


def _unreached(text: str) -> Outcome:
    failed = failed_outcome(ReasonCode.FAILED_STEP, text, retryable=True)
    return failed.model_copy(update={"errors": CONNECTION})


def _no_tool(server: str, name: str, state: ServerState) -> str:
    known = ", ".join(f"{server}.{tool.name}" for tool in state.tools)
    return f"ToolNotFound: server {server!r} has no tool {name!r}; it has: {known}"
