"""Chooses the model that a checker's agent is asked for."""

from __future__ import annotations

from workers.prompts.inputs import CheckInputs
from workers.task.task import BodyTask

#: Programs that know only the models of their own maker.
_OWN_MODELS = {"claude", "codex"}


def checker_model(task: BodyTask, given: CheckInputs, name: str) -> str | None:
    """Returns the model for a checker: its own, else the doer's if the checker's agent takes it.

    Raises AgentUnknown.
    """
    if given.checker.model is not None or given.doer_model is None:
        return given.checker.model
    agent = task.agents.agent(name)
    doer = given.doer.agent if given.doer is not None else task.default_agent
    makers = {_maker(task, one) for one in (doer, name)}
    is_foreign = len(makers) > 1 and makers <= _OWN_MODELS
    return given.doer_model if agent.takes_model and not is_foreign else None


def _maker(task: BodyTask, name: str | None) -> str:
    """The program of an agent; empty for any other kind."""
    agent = task.agents.agents.get(name or "")
    command = agent.command if agent is not None else None
    return command[0].rpartition("/")[2] if command else ""
