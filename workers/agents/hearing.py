"""Reads what an agent's program prints, as it prints it: answer, conversation, cost and tokens."""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic import JsonValue

from app.outcomes import Busy, Usage
from app.texts import cut
from workers.agents.entries import Agent
from workers.agents.errors import AnswerUnreadable
from workers.agents.fields import find
from workers.agents.spending import Meter
from workers.capture import Captured
from workers.lines import Lines

#: Bytes of output that are searched for one JSON object, from the end.
SEARCHED_BYTES = 16 * 1024 * 1024
#: Characters of one text that a session keeps.
TEXT_LIMIT = 64_000
#: The same where it is told again in each later turn of a conversation.
TURN_LIMIT = 1_000_000
#: However long it asks to wait for, it is asked again by then.
WAIT_LIMIT_S = 3600.0
#: Characters of a conversation's id that are believed to be one.
THREAD_LIMIT = 500


class Hearing:
    """Takes the bytes of one run; bears whatever they are."""

    def __init__(
        self,
        agent: Agent,
        *,
        before: Usage | None,
        on_spent: Callable[[Usage], None],
        limit: int = TEXT_LIMIT,
    ) -> None:
        self._agent = agent
        self._limit = limit
        self._meter = Meter(agent, before=before)
        self._on_spent = on_spent
        self._lines = Lines(self._take_line)
        self._answer: str | None = None
        self._failed: str | None = None
        self._is_busy = False
        self._after_s: float | None = None
        self.final = False
        self.thread: str | None = None

    def write(self, chunk: bytes) -> None:
        """Take what it printed next; only lines of JSON mean something before the end."""
        if self._agent.output == "lines":
            self._lines.write(chunk)

    def answer(self, output: Captured) -> str:
        """The answer, once it has ended, well or not. Raises AnswerUnreadable."""
        self._lines.close()
        if self._agent.output == "json":
            self._take(_object(output))
        if self._failed is not None:
            raise AnswerUnreadable(f"it reports an error: {cut(self._failed, 2_000)}")
        if self._agent.output == "text":
            return cut(output.text.strip(), self._limit)
        if self._answer is None:
            raise AnswerUnreadable(self._nothing(output))
        return cut(self._answer.strip(), self._limit)

    @property
    def failure(self) -> str | None:
        """Why it says that it failed."""
        return self._failed

    @property
    def usage(self) -> Usage | None:
        """What it told of its cost and tokens so far, for this run alone."""
        return self._meter.usage

    @property
    def told(self) -> Usage | None:
        """What it told of the whole conversation, where it tells of that."""
        return self._meter.told

    @property
    def busy(self) -> Busy | None:
        """Whether it says that another time may be better."""
        if not self._is_busy:
            return None
        return Busy(after_s=self._after_s, tries=self._agent.busy_tries)

    def _take_line(self, line: bytes) -> None:
        if line.lstrip()[:1] == b"{":
            self._take(_parsed(line.decode(errors="replace")))

    def _take(self, event: JsonValue) -> None:
        if not isinstance(event, dict):
            return
        agent = self._agent
        answer = _text(agent, "answer", event)
        self._answer = self._answer if answer is None else answer
        self._failed = _text(agent, "failed", event) or self._failed
        self.final = self.final or any(find(path, event) is not None for path in agent.final)
        self._hear_busy(event)
        thread = _text(agent, "thread", event)
        if thread is not None and 0 < len(thread) <= THREAD_LIMIT:
            self.thread = thread
        if self._meter.take(event) and self._meter.usage is not None:
            self._on_spent(self._meter.usage)

    def _hear_busy(self, event: JsonValue) -> None:
        agent = self._agent
        if not any(find(path, event) is not None for path in agent.busy):
            return
        self._is_busy = True
        wait = find(agent.retry_after_s, event) if agent.retry_after_s is not None else None
        if isinstance(wait, int | float) and wait >= 0:
            self._after_s = min(float(wait), WAIT_LIMIT_S)

    def _nothing(self, output: Captured) -> str:
        if not output.text.strip():
            return "it printed nothing"
        if self._agent.output == "json" and _object(output) is None:
            return f"its output is not JSON: {cut(output.text.strip(), 500)!r}"
        return f"its output has no field {self._agent.answer!r}: {cut(output.text.strip(), 500)!r}"


def _text(agent: Agent, what: str, event: JsonValue) -> str | None:
    """What stands there as text; an empty text is one too."""
    path = getattr(agent, what)
    value = find(path, event) if path is not None else None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _object(output: Captured) -> JsonValue:
    """The JSON object that the output is, or that its last line is."""
    text = output.whole(SEARCHED_BYTES).strip()
    whole = _parsed(text)
    return whole if isinstance(whole, dict) else _parsed(text.rpartition("\n")[2])


def _parsed(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
