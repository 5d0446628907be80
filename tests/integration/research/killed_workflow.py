"""A program that is killed in the middle of one of its steps: test_kills.py starts it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from leadhand.research import AgentConfig, ResearchAgent, Workflow, WorkflowStep


async def carry_out(url: str, token: str, folder: Path, killed_at: str) -> None:
    """Carry out or continue the workflow; the process kills itself within a step."""

    async def work(name: str, given: Any = None) -> str:
        with (folder / "calls").open("a") as calls:
            calls.write(f"{name}\n")
        if name == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name}({given})"

    def step(name: str, *needs: str) -> WorkflowStep:
        given = " ".join("${" + need + "}" for need in needs)
        return WorkflowStep(name, "work", {"name": name, "given": given})

    workflow = Workflow(
        "papers",
        "",
        [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e", "d")],
    )
    config = AgentConfig(state_dir=str(folder / "agent"), max_retries=0, max_parallel=1)
    agent = ResearchAgent({"work": work}, config, url=url, token=token)
    result = await agent.execute_workflow(workflow, "killed")
    (folder / "result").write_text(str(result.results["e"]))


if __name__ == "__main__":
    asyncio.run(carry_out(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
