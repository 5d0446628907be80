"""The log of one workflow's tool calls: a line of JSON for each, in the state folder."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("leadhand.research")
#: Names of arguments whose values are not logged.
_SECRET = re.compile(r"(?i)pass(word|wd|phrase)?$|secret|token|api_?key|credential|authorization")
#: Characters of a text in the log.
_LONGEST = 2_000


class StepLog:
    """Appends a line for each tool call. A log that cannot be written never stops a workflow."""

    def __init__(self, folder: Path, session_id: str) -> None:
        self.path = folder / "logs" / f"{session_id}.log"

    def write(
        self,
        step: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        elapsed: float,
        result: Any = None,
        error: str | None = None,
        attempt: int = 1,
    ) -> None:
        """Append one tool call to the log without secrets; a failed write only logs a warning."""
        line = {
            "time": datetime.now().astimezone().isoformat(),
            "step": step,
            "tool": tool,
            "attempt": attempt,
            "arguments": redacted(arguments),
            **({"result": redacted(result)} if error is None else {"error": error[:_LONGEST]}),
            "elapsed": round(elapsed, 3),
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False, default=repr) + "\n")
        except OSError as failure:
            _LOG.warning("the log %s is not written: %s", self.path, failure)


def redacted(value: Any) -> Any:
    """Redacts secrets in a value and shortens its texts.

    >>> redacted({"api_key": "k", "query": "agents"})
    {'api_key': '[redacted]', 'query': 'agents'}
    """
    match value:
        case dict():
            return {
                name: "[redacted]" if _SECRET.search(str(name)) else redacted(item)
                for name, item in value.items()
            }
        case list() | tuple():
            return [redacted(item) for item in value]
        case str() if len(value) > _LONGEST:
            return f"{value[:_LONGEST]}… ({len(value):,} characters)"
        case _:
            return value
