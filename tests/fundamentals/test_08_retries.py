"""Lesson 8: retries.

A refusal is not a failure: the loop's next iteration is the retry. Two more things can run again:
a phase that failed (`on_fail="retry:N"`), and an agent of a flow that failed (`attempts`).
`LEADHAND_KEY` is the same for every attempt at a step, for effects that must not happen twice.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client, Workflow

#: Accepts the third try.
THIRD_TIME = "test $(wc -l < tries) -eq 3"


def test_a_failed_phase_runs_again(client: Client, folder: Path) -> None:
    workflow = Workflow("persistent", doer="echo x >> tries", cwd=folder)
    phase = workflow.phase(
        "try", task="try", checker=THIRD_TIME, max_iterations=1, on_fail="retry:2"
    )

    workflow.run(client=client)

    assert phase.result is not None
    assert phase.result.passed
    assert [entry["run"] for entry in phase.result.loop_result.history] == [1, 2, 3]


def test_an_agent_that_failed_is_asked_again(client: Client, folder: Path) -> None:
    """`flaky` of agents.toml fails when it runs first."""
    session = client.submit(
        {
            "kind": "flow",
            "name": "flaky",
            "cwd": str(folder),
            "attempts": 2,
            "steps": [
                {
                    "type": "llm",
                    "agentType": "flaky",
                    "identifier": "main",
                    "messages": [{"role": "user", "content": ["Work."]}],
                }
            ],
        }
    )

    assert client.wait(session.id).status == "completed"
    (step,) = client.steps(session.id).items
    assert step.attempt == 2
    assert client.session(session.id).counters.attempts_failed == 1


def test_every_iteration_has_a_key_of_its_own(client: Client, folder: Path) -> None:
    workflow = Workflow("keys", doer='echo "$LEADHAND_KEY" >> keys', cwd=folder)
    workflow.phase("try", task="try", checker="test $(wc -l < keys) -eq 2")

    workflow.run(client=client)

    session = workflow.session_id
    assert (folder / "keys").read_text().splitlines() == [
        f"{session}:try~1[1]/do",
        f"{session}:try~1[2]/do",
    ]
