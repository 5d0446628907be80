"""Lines of the log: ids in each, fields beside the message, one line each."""

from __future__ import annotations

import json
import logging
import sys
import threading

import pytest

from app import logs
from app.logs import JsonLines, PlainLines, about


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("leadhand.test", logging.INFO, __file__, 1, message, (), None)
    vars(made).update(fields)
    return made


def told(made: logging.LogRecord) -> dict[str, object]:
    fields = json.loads(JsonLines().format(made))
    del fields["at"]
    return dict(fields)


def test_a_line_of_json_has_the_ids_of_what_it_is_about() -> None:
    with about(session="1a2b3c4d"), about(step="loop~1[1]/do", attempt="2"):
        line = told(record("step settled", word="succeeded", verdict=None))
    assert line == {
        "level": "info",
        "logger": "leadhand.test",
        "message": "step settled",
        "session": "1a2b3c4d",
        "step": "loop~1[1]/do",
        "attempt": "2",
        "word": "succeeded",
    }


def test_what_was_before_holds_again_afterwards() -> None:
    with about(session="1a2b3c4d"):
        with about(step="do"):
            pass
        assert "step" not in told(record("x"))
    assert "session" not in told(record("x"))


def test_another_thread_is_about_its_own() -> None:
    seen: list[dict[str, object]] = []

    def other() -> None:
        logs.begin(request_id="r2")
        seen.append(told(record("x")))

    with about(session="1a2b3c4d"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert told(record("x"))["session"] == "1a2b3c4d"
    assert [(line.get("session"), line.get("request_id")) for line in seen] == [(None, "r2")]


def test_a_line_for_people_keeps_to_one_line() -> None:
    with about(session="1a2b3c4d"):
        line = PlainLines().format(record("claim refused", why="two\nlines"))
    assert line.endswith(r'INFO leadhand.test: claim refused [session=1a2b3c4d why="two\nlines"]')


@pytest.mark.parametrize("form", [JsonLines(), PlainLines()])
def test_an_exception_is_told(form: logging.Formatter) -> None:
    made = record("sweep failed, goes on")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: why" in form.format(made)
