"""A line of an agent's JSON is read up to 1 MiB; a longer one is skipped, and said to be."""

from __future__ import annotations

import json
import sys
import threading
import tracemalloc
from pathlib import Path

from app.core.outcomes import Outcome
from app.core.program import Action
from tests.unit.workers.test_activity import blocks
from workers.agents.output_parser import OutputParser
from workers.attempt.actions import run_body
from workers.live_output import LiveOutput
from workers.processes.output import LINE_LIMIT
from workers.registry.agent_entry import Agent
from workers.registry.agents import AgentBook
from workers.task import BodyTask

#: An agent that prints a line of 10 MB, and then as its argument says.
CODE = """
import json, sys
sys.stdin.read()
sys.stdout.write('{"type": "user", "big": "' + "x" * 10_000_000 + '"}' + chr(10))
if sys.argv[1] == "answers":
    print(json.dumps({"result": "It is done."}))
"""


def agent(end: str) -> Agent:
    command = (sys.executable, "-c", CODE, end)
    return Agent(command=command, output="lines", answer="result")


def run(folder: Path, end: str) -> tuple[Outcome, str]:
    """The outcome of the agent, and what was shown of it."""
    live = LiveOutput()
    task = BodyTask(
        session="ab12cd34",
        address="loop~1[1]/do",
        action=Action.AGENT,
        iteration=1,
        attempt=1,
        inputs={"task": "Try.", "doer": {"agent": "big"}},
        cwd=folder,
        spill=folder / "spill",
        timeout_s=60.0,
        url="http://127.0.0.1:1",
        mint=lambda: "lhc1.x.y",
        agents=AgentBook(agents={"big": agent(end)}),
        default_agent=None,
        live=live,
    )
    outcome = run_body(task, threading.Event())
    live.end()
    return outcome, "".join(part.text for part in live.take(1e9))


def test_the_line_is_skipped_with_a_note_and_the_next_ones_are_read(tmp_path: Path) -> None:
    outcome, shown = run(tmp_path, "answers")
    assert (outcome.word, outcome.text) == ("succeeded", "It is done.")
    assert "! warning: a line of 10.0 MB was skipped; lines are read up to 1048576 bytes" in shown


def test_an_agent_whose_answer_was_in_the_line_is_told_so(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, "ends")
    assert outcome.word == "failed"
    assert outcome.reason is not None
    assert "1 of its lines being longer than 1 MiB, has no field 'result'" in outcome.reason.text


def test_memory_is_bounded_by_the_limit_and_not_by_the_line() -> None:
    parser = OutputParser(agent("ends"), before=None, on_spent=lambda _: None)
    whole = json.dumps(blocks("assistant", {"type": "text", "text": "y" * 900_000})).encode()
    chunk = b"x" * 65_536
    tracemalloc.start()
    try:
        for _ in range(160):
            parser.write(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * LINE_LIMIT
    parser.write(b"\n" + whole + b"\n")  # a line below the limit is read whole
    parser.write(b'{"result": "yes"}\n')
    assert parser._answer == "yes"
