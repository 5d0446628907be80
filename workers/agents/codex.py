"""Reads what Codex reports: its events, and its log of why a sandbox started no command.

`codex exec --json` reports no command that the sandbox refused (0.169). The rollout file of the
thread has the call and its output, so it is read where the printed lines show no tool call. The
agent may write to that file, so nothing in it is trusted to make a turn succeed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import JsonValue

from workers.agents.activity import (
    Activity,
    AgentText,
    Notice,
    ToolEnded,
    ToolStarted,
    format_input,
    format_value,
)

_SHELLS = ("bash", "sh", "zsh")
_FAILED = ("failed", "declined")
#: Bytes that are read of a rollout file, from its end: more than one turn takes.
_READ_BYTES = 16 * 1024 * 1024
#: What Codex calls its shells, by version.
_ROLLOUT_SHELLS = frozenset({"exec_command", "shell_command", "shell"})
_THREAD = re.compile(r"[0-9A-Za-z-]{8,64}")
#: The first line of a command's output, if the sandbox's program wrote it.
_ERROR = re.compile(r'(?:\A|\nOutput:\n|"output":\s*")(bwrap: [^\n"\\]*)')


def read_codex(event: dict[str, JsonValue]) -> Iterator[Activity]:
    """Yields the tool calls and notices in an event of Codex; none for other events."""
    kind, item = event.get("type"), event.get("item")
    if kind == "error":
        yield _notice(format_value(event.get("message")))
    elif isinstance(item, dict) and kind in ("item.started", "item.completed"):
        yield from _read_item(item, is_complete=kind == "item.completed")


def _notice(message: str) -> Notice:
    """An error; one that begins with "Reconnecting..." is a retry."""
    start, _, rest = message.partition("Reconnecting... ")
    return Notice("retry", rest) if not start and rest else Notice("error", message)


def _read_item(item: dict[str, JsonValue], *, is_complete: bool) -> Iterator[Activity]:
    kind = item.get("type")
    if kind in ("agent_message", "reasoning", "error"):
        text = format_value(item.get("text") or item.get("message"))
        if is_complete:
            yield Notice("warning", text) if kind == "error" else AgentText(text)
        return
    call = _call(item)
    if call is None:
        return
    if is_complete:
        yield ToolEnded(call.id, _result(item), _has_failed(item), call)
    else:
        yield call


def _call(item: dict[str, JsonValue]) -> ToolStarted | None:
    given = item.get("id")
    id_ = given if isinstance(given, str) else None
    match item.get("type"):
        case "command_execution":
            return ToolStarted(id_, "shell", _command(format_value(item.get("command"))))
        case "file_change":
            return ToolStarted(id_, "file_change", _changes(item.get("changes")))
        case "mcp_tool_call":
            name = f"{item.get('server') or 'mcp'}.{item.get('tool') or 'tool'}"
            return ToolStarted(id_, name, format_input(item.get("arguments")))
        case "web_search":
            return ToolStarted(id_, "web_search", format_value(item.get("query")))
        case _:
            return None


def _command(line: str) -> str:
    """The command without the shell that Codex runs it in.

    >>> _command("/bin/bash -lc 'echo hello; exit 3'")
    'echo hello; exit 3'
    """
    try:
        words = shlex.split(line)
    except ValueError:
        return line
    is_shell = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS
    return words[2] if is_shell and words[1] in ("-c", "-lc") else line


def _changes(changes: JsonValue) -> str:
    if not isinstance(changes, list):
        return ""
    return ", ".join(f"{c.get('kind')} {c.get('path')}" for c in changes if isinstance(c, dict))


def _result(item: dict[str, JsonValue]) -> str:
    for field in ("aggregated_output", "error", "result"):
        value = item.get(field)
        if isinstance(value, dict):
            value = value.get("message") or value.get("content") or value
        if value:
            return format_value(value)
    code = item.get("exit_code")
    return f"exit code {code}" if code else ""


def _has_failed(item: dict[str, JsonValue]) -> bool:
    code = item.get("exit_code")
    return item.get("status") in _FAILED or bool(item.get("error")) or code not in (None, 0)


def codex_home(env: Mapping[str, str]) -> Path | None:
    """Returns the folder of Codex's conversations, by CODEX_HOME or HOME; None without both."""
    if env.get("CODEX_HOME"):
        return Path(env["CODEX_HOME"])
    return Path(env["HOME"], ".codex") if env.get("HOME") else None


def find_sandbox_error(home: Path, thread: str) -> str | None:
    """Returns Codex's sandbox error if no command of a thread's last turn started, else None."""
    if not _THREAD.fullmatch(thread):
        return None
    shells, errors = set[str](), list[str | None]()
    for item in _last_turn(_read_lines(home, thread)):
        if item.get("type") == "function_call" and item.get("name") in _ROLLOUT_SHELLS:
            shells.add(str(item.get("call_id")))
        elif item.get("type") == "function_call_output" and str(item.get("call_id")) in shells:
            errors.append(_error_in(item.get("output")))
    return errors[-1] if errors and all(errors) else None


def _error_in(output: JsonValue) -> str | None:
    found = _ERROR.search(_text_of(output))
    return found.group(1)[:300] if found else None


def _text_of(output: JsonValue) -> str:
    """The output of a call: a text, or parts of which some have a text."""
    if isinstance(output, list):
        return "".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return output if isinstance(output, str) else ""


def _last_turn(lines: Sequence[bytes]) -> list[dict[str, JsonValue]]:
    """The items of the last turn, in order. A forked thread begins with those of the old one."""
    items = list[dict[str, JsonValue]]()
    for line in reversed(lines):
        payload = _payload(line)
        if payload.get("type") == "task_started":
            break
        items.append(payload)
    return items[::-1]


def _payload(line: bytes) -> dict[str, JsonValue]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    payload = value.get("payload") if isinstance(value, dict) else None
    return payload if isinstance(payload, dict) else {}


def _read_lines(home: Path, thread: str) -> list[bytes]:
    """The last lines of the thread's file; none where there is no file that can be read."""
    with suppress(OSError):
        for day in _days(home / "sessions"):
            for path in day.glob(f"rollout-*-{thread}.jsonl"):
                return _tail(path).splitlines()
    return []


def _days(sessions: Path) -> Iterator[Path]:
    """The folders of a day each, the newest first: a new thread is in the first one."""
    for year in _newest_first(sessions):
        for month in _newest_first(year):
            yield from _newest_first(month)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []


def _tail(path: Path) -> bytes:
    """The end of a regular file; nothing of anything else, such as a pipe."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return b""
        file.seek(max(0, found.st_size - _READ_BYTES))
        return file.read(_READ_BYTES)
