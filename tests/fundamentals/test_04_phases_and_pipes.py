"""Lesson 4: phases and pipes.

A *workflow* runs loops in sequence; each of them is a *phase*. A doer reads the result of the
phase before its own, or of the phases that `pipe_from` names. A phase that fails stops the
workflow, unless its `on_fail` says otherwise.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client, Workflow
from tests.fundamentals.conftest import Terminal

#: Keeps its prompt in a file named by the first word of the task, and answers with that word.
DOER = 'prompt=$(cat); name=${prompt%% *}; echo "$prompt" > $name.prompt; echo this is $name'


def test_a_phase_reads_the_result_of_the_one_before_it(client: Client, folder: Path) -> None:
    workflow = Workflow("poem", doer=DOER, cwd=folder)
    workflow.phase("plan", task="plan the poem", checker="true")
    workflow.phase("write", task="write the poem", checker="true")

    results = workflow.run(client=client)

    assert [(name, phase.verdict) for name, phase in results.items()] == [
        ("plan", "accept"),
        ("write", "accept"),
    ]
    assert "**plan**: this is plan" in (folder / "write.prompt").read_text()


def test_pipe_from_names_the_phases_to_read(client: Client, folder: Path) -> None:
    workflow = Workflow("poem", doer=DOER, cwd=folder)
    for name in ("plan", "write", "title"):
        workflow.phase(name, task=f"{name} the poem", checker="true")
    workflow.phase("review", task="review the poem", checker="true", pipe_from=["plan", "write"])

    workflow.run(client=client)

    prompt = (folder / "review.prompt").read_text()
    assert "this is plan" in prompt
    assert "this is write" in prompt
    assert "this is title" not in prompt


def test_a_failed_phase_stops_the_workflow(client: Client, folder: Path) -> None:
    workflow = Workflow("poem", doer="true", cwd=folder)
    workflow.phase("plan", task="plan", checker="false", max_iterations=1)
    workflow.phase("write", task="write", checker="true")

    results = workflow.run(client=client)

    assert list(results) == ["plan"]
    assert not results["plan"].passed


def test_a_workflow_file_runs_from_the_command_line(terminal: Terminal, folder: Path) -> None:
    (folder / "poem.py").write_text(
        "from leadhand import Workflow\n"
        "workflow = Workflow('poem', doer='true')\n"
        "workflow.phase('plan', task='plan', checker='false', on_fail='continue')\n"
        "workflow.phase('write', task='write', checker='true')\n"
        "for name, phase in workflow.run().items():\n"
        "    print(name, phase.verdict)\n"
    )

    ended = terminal("leadhand workflow poem.py")

    assert ended.code == 0
    assert "plan max_iterations" in ended.out
    assert "write accept" in ended.out
