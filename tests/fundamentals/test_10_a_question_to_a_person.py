"""Lesson 10: a question to a person.

A `human` step asks a person and waits. It holds no worker meanwhile, and it outlives a restart of
everything. Somebody answers from the command line, over HTTP or with the client; the answer is the
result of the step, and later steps read it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand import Client
from leadhand.errors import AnswerUnwanted
from tests.fundamentals.conftest import Terminal
from tests.waiting import wait_until


def ask_for_a_title(client: Client, folder: Path) -> str:
    """Starts a flow that asks for a title and hands it to an agent."""
    session = client.submit(
        {
            "kind": "flow",
            "name": "title",
            "cwd": str(folder),
            "steps": [
                {"type": "human", "label": "title", "question": "Which title?"},
                {
                    "type": "llm",
                    "agentType": "parrot",
                    "identifier": "main",
                    "messages": [{"role": "user", "content": ["${steps.title}"]}],
                },
            ],
        }
    )
    wait_until(lambda: client.session(session.id).status == "waiting")
    return session.id


def test_a_session_waits_for_an_answer_and_uses_it(client: Client, folder: Path) -> None:
    session = ask_for_a_title(client, folder)
    (wait,) = client.explain(session).waits
    assert (wait.why, wait.question) == ("human", "Which title?")

    client.answer(session, "Roses")

    client.wait(session)
    (answer,) = [one for one in client.transcript(session).items if one.role == "assistant"]
    assert answer.text == "Roses"


def test_the_first_answer_counts(client: Client, folder: Path) -> None:
    session = ask_for_a_title(client, folder)
    client.answer(session, "Roses")

    with pytest.raises(AnswerUnwanted):
        client.answer(session, "Violets")


def test_the_command_line_shows_and_answers_the_question(
    terminal: Terminal, client: Client, folder: Path
) -> None:
    session = ask_for_a_title(client, folder)

    assert "Which title?" in terminal(f"leadhand show {session}").out
    assert terminal(f"leadhand answer {session} Roses").code == 0
    assert terminal(f"leadhand wait {session}").code == 0
