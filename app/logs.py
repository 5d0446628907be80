"""Logging of the server processes: one line per event with its ids as fields, never payloads."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from app.redaction import without_keys
from leadhand.models.text import escape_controls, escape_line

#: Attributes of every log record; all others were passed as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
#: Loggers of Celery that log each task without its session.
_CHATTY = ("celery.worker.strategy", "celery.app.trace")

_IDS: ContextVar[Mapping[str, str]] = ContextVar("ids", default={})  # noqa: B039 - never changed


@contextmanager
def about(**ids: str) -> Iterator[None]:
    """Adds these ids to every line that is logged inside the `with` block."""
    token = _IDS.set({**_IDS.get(), **ids})
    try:
        yield
    finally:
        _IDS.reset(token)


def begin(**ids: str) -> None:
    """Replaces the ids that are added to every log line of this thread."""
    _IDS.set(ids)


def log_doubts(doubts: Iterable[str]) -> None:
    """Logs a warning for each suspicious setting of a process that starts."""
    for text in doubts:
        logging.getLogger("leadhand").warning("a setting looks wrong", extra={"why": text})


def log_to_stderr(form: Literal["plain", "json"]) -> None:
    """Configure logging: lines from INFO on go to standard error, as plain text or JSON."""
    # Finding the caller and the thread would be a third of the cost of a line.
    logging._srcfile = None
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonLines() if form == "json" else PlainLines())
    logging.basicConfig(handlers=[lines], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, with its ids and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line of JSON, with secrets redacted."""
        line: dict[str, object] = {
            "at": _at(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escape_line(without_keys(json.dumps(line, default=str, ensure_ascii=False)))


class PlainLines(logging.Formatter):
    """Formats a record for people: the fields follow the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as plain text, without secrets and control characters."""
        when = _at(record).isoformat(" ", "seconds")[:19]
        text = f"{when} {record.levelname} {record.name}: {record.getMessage()}"
        fields = " ".join(f"{name}={_word(value)}" for name, value in _fields(record).items())
        line = escape_line(f"{text} [{fields}]" if fields else text)
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return escape_controls(without_keys(line + trace))


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The ids of the thread, and the fields of the line itself."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {name: value for name, value in {**_IDS.get(), **extra}.items() if value is not None}


def _word(value: object) -> str:
    """Formats a field's value, quoted if necessary.

    >>> _word("42"), _word("two words")
    ('42', '"two words"')
    """
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or {*' "=[]\n'} & {*text} else text
