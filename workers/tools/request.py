"""Sends the HTTP request of a tool, in a process of its own, and parses the response."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from urllib.parse import quote

from pydantic import JsonValue

from app.domain.outcomes import Outcome
from app.truncate import cut
from leadhand.graphs.retry_errors import CONNECTION, http_error
from leadhand.models.reasons import ReasonCode
from workers.processes.exit_outcome import add_process_facts, failed_outcome, failure
from workers.processes.process import run
from workers.registry.declared.entry import DeclaredTool
from workers.registry.declared.placeholders import as_text, fill
from workers.task.task import BodyTask
from workers.tools.outcomes import outcome_of

#: Bytes of the child's answer, which holds a response of at most 4 MiB.
_ANSWER_BYTES = 32 * 1024 * 1024
#: Characters of an error's response that the reason quotes.
_QUOTED = 2_000
#: Statuses after which the same request may succeed. A step's `retry_on` names others.
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


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
