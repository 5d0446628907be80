"""Lesson 5: flows.

A *flow* is a list of steps in a JSON file: prompts to agents, loops, decisions, checks. A loop of a
flow repeats its steps until a `break` step decides that it is over. A decision is a question to an
agent, or a script that prints `{"answer": "yes"}` or `{"answer": "no"}`.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client
from tests.fundamentals.conftest import Terminal, WriteFlow

PARROT = {"agentType": "parrot", "identifier": "main"}


def say(label: str, *lines: str) -> dict[str, object]:
    """A step that sends these lines to the agent."""
    messages = [{"role": "user", "content": list(lines)}]
    return {"type": "llm", "label": label, **PARROT, "messages": messages}


def test_a_step_reads_what_an_earlier_step_came_to(
    terminal: Terminal, write_flow: WriteFlow
) -> None:
    write_flow(
        "greeting",
        {
            "inputs": {"name": "world"},
            "steps": [say("greet", "Hello, ${inputs.name}!"), say("repeat", "${steps.greet}")],
        },
    )

    ended = terminal("leadhand flow run greeting --input name=Ada --json")

    assert ended.code == 0, ended.err
    said = terminal(f"leadhand transcript {ended.json()['session_id']}").out
    assert said.count("Hello, Ada!") == 4  # each of the two prompts, and the parrot's answer


def test_a_loop_repeats_until_a_break_decides(client: Client, folder: Path) -> None:
    (folder / "enough.sh").write_text(
        'if test "$LEADHAND_ITERATION" -ge 3; then answer=yes; else answer=no; fi\n'
        'echo "{\\"answer\\": \\"$answer\\"}"\n'
    )
    enough = {"type": "break", "command": "sh enough.sh", "breakOn": "yes"}
    session = client.submit(
        {
            "kind": "flow",
            "name": "drafts",
            "cwd": str(folder),
            "steps": [{"type": "startLoop", "steps": [say("draft", "Write a draft."), enough]}],
        }
    )

    assert client.wait(session.id).status == "completed"

    prompts = [one for one in client.transcript(session.id).items if one.text == "Write a draft."]
    assert len(prompts) >= 3
    assert client.ledger(session.id).items[-1].iteration == 3


def test_flow_check_names_the_place_and_the_fault(terminal: Terminal, folder: Path) -> None:
    (folder / "broken.json").write_text('{"steps": [{"type": "break"}]}')

    ended = terminal("leadhand flow check broken.json")

    assert ended.code == 1
    assert "broken.json: steps[0].breakOn" in ended.err
