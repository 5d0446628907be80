"""The log of one workflow: lines of JSON for its begin, calls, decisions and end."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import Any

from leadhand.models.secret_forms import MARK, without_forms

#: Names of arguments whose values are not logged.
_SECRET = re.compile(r"(?i)pass(word|wd|phrase)?$|secret|token|api_?key|credential|authorization")
#: Characters of a text in the log.
_LONGEST = 2_000
#: Characters of a whole result in the log.
_LONGEST_RESULT = 64_000


class StepLog:
    """Appends lines. A log that cannot be written never stops a workflow."""

    def __init__(self, folder: Path, session_id: str, logger: logging.Logger) -> None:
        self.path = folder / "logs" / f"{session_id}.log"
        self._logger = logger

    def begin(self, workflow: str, steps: list[str], *, ended: Collection[str]) -> None:
        """Append that an execution of the workflow begins; `ended` steps are not called again."""
        fields = {"workflow": workflow, "steps": steps}
        self._append("begin", fields | ({"ended": sorted(ended)} if ended else {}))

    def decision(self, step: str, decision: str, **fields: Any) -> None:
        """Append a decision about a step, such as to try it again."""
        self._append("decision", {"step": step, "decision": decision, **redacted(fields)})

    def end(self, status: str, message: str, *, elapsed: float) -> None:
        """Append how the execution ended."""
        fields = {"status": status, "message": redacted(message), "elapsed": round(elapsed, 3)}
        self._append("end", fields)

    def call(
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
        """Append one tool call without secrets; of a long result only the length."""
        shown = redacted(result)
        length = len(json.dumps(shown, default=repr))
        fields = {
            "step": step,
            "tool": tool,
            "attempt": attempt,
            "arguments": redacted(arguments),
            **(
                {"result": shown if length <= _LONGEST_RESULT else f"{length:,} characters"}
                if error is None
                else {"error": without_forms(error)[:_LONGEST]}
            ),
            "elapsed": round(elapsed, 3),
        }
        self._append("call", fields)

    def _append(self, event: str, fields: dict[str, Any]) -> None:
        line = {"time": datetime.now().astimezone().isoformat(), "event": event, **fields}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False, default=repr) + "\n")
        except OSError as failure:
            self._logger.warning("the log %s is not written: %s", self.path, failure)


def redacted(value: Any) -> Any:
    """Redacts secrets in a value, by the name or the form, and shortens its texts.

    >>> redacted({"api_key": "k", "query": "agents", "note": "curl -u me:hush-hush x.example"})
    {'api_key': '[redacted]', 'query': 'agents', 'note': 'curl -u me:[redacted] x.example'}
    """
    match value:
        case dict():
            return {
                name: MARK if _SECRET.search(str(name)) else redacted(item)
                for name, item in value.items()
            }
        case list() | tuple():
            return [redacted(item) for item in value]
        case str():
            text = without_forms(value)
            cut = f"{text[:_LONGEST]}… ({len(value):,} characters)"
            return cut if len(text) > _LONGEST else text
        case _:
            return value
