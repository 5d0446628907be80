"""The log of a server process: one line each, with the ids of what it is about, never a payload."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from app.redaction import without_keys

#: What a record holds without our doing; all else was given as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
#: Others' lines that tell of each task without saying of which session it was.
_CHATTY = ("celery.worker.strategy", "celery.app.trace")

_IDS: ContextVar[Mapping[str, str]] = ContextVar("ids", default={})  # noqa: B039 - never changed


@contextmanager
def about(**ids: str) -> Iterator[None]:
    """Every line that is written within is about these."""
    token = _IDS.set({**_IDS.get(), **ids})
    try:
        yield
    finally:
        _IDS.reset(token)


def begin(**ids: str) -> None:
    """Every line of this thread is about these from now on, and about nothing else."""
    _IDS.set(ids)


def log_to_stderr(form: Literal["plain", "json"]) -> None:
    """Write all lines from INFO on to standard error."""
    # Where in the code a line comes from, and which thread wrote it, is a third of its cost.
    logging._srcfile = None
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonLines() if form == "json" else PlainLines())
    logging.basicConfig(handlers=[lines], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """A record as one line of JSON, its ids and fields beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": _at(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return without_keys(json.dumps(told, default=str, ensure_ascii=False))


class PlainLines(logging.Formatter):
    """The same for people: the fields follow the message."""

    def format(self, record: logging.LogRecord) -> str:
        when = _at(record).isoformat(" ", "seconds")[:19]
        said = f"{when} {record.levelname} {record.name}: {record.getMessage()}"
        fields = " ".join(f"{name}={_word(value)}" for name, value in _fields(record).items())
        line = f"{said} [{fields}]" if fields else said
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return without_keys(line + trace)


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The ids of what the thread is at, and what the line itself was given."""
    given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {name: value for name, value in {**_IDS.get(), **given}.items() if value is not None}


def _word(value: object) -> str:
    """A field's value on a line for people.

    >>> _word("42"), _word("two words")
    ('42', '"two words"')
    """
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or {*' "=[]\n'} & {*text} else text
