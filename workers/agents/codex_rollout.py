"""Reads from Codex's own record of a conversation why its sandbox started no command.

`codex exec --json` reports no command that the sandbox refused (0.169). The rollout file of the
thread has the call and its output, so it is read where the printed lines show no tool call. The
agent may write to that file, so nothing in it is trusted to make a turn succeed.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import JsonValue

#: Bytes that are read of a rollout file, from its end: more than one turn takes.
_READ_BYTES = 16 * 1024 * 1024
#: What Codex calls its shells, by version.
_SHELLS = frozenset({"exec_command", "shell_command", "shell"})
_THREAD = re.compile(r"[0-9A-Za-z-]{8,64}")
#: The first line of a command's output, if the sandbox's program wrote it.
_ERROR = re.compile(r'(?:\A|\nOutput:\n|"output":\s*")(bwrap: [^\n"\\]*)')


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
        if item.get("type") == "function_call" and item.get("name") in _SHELLS:
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
