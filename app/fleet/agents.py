"""The agents that workers report, and checks of documents against them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.errors import InvalidDocument
from app.fleet.inventory import summarize
from leadhand.models.views.fleet import AgentHere, AgentView, WorkerView


def agents_of(workers: Sequence[WorkerView]) -> list[AgentView]:
    """Lists the agents of all workers: where each can be used, and why not elsewhere."""
    names = sorted({agent.name for worker in workers for agent in worker.agents_here})
    return [_view(name, workers) for name in names]


def _view(name: str, workers: Sequence[WorkerView]) -> AgentView:
    found = [(w.place, a) for w in workers for a in w.agents_here if a.name == name]
    first, at, why_not = summarize(found)
    return AgentView(
        **first.model_dump(exclude={"why_not", "lacks", "program"}),
        default=any(worker.default_agent == name for worker in workers),
        usable_at=at,
        why_not=dict(why_not),
    )


class AgentsThere:
    """The agents of some workers. Without any worker, every check passes."""

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self._workers = workers
        self.known = bool(workers)
        self._known = {agent for worker in workers for agent in worker.agents}

    def check(
        self, field: str, name: str, *, model_field: str = "", model: str | None = None
    ) -> None:
        """Raises InvalidDocument if no worker can run the agent and model; passes if no workers."""
        if not self._workers:
            return
        if name not in self._known:
            known = ", ".join(sorted(self._known)) or "none"
            hint = f"no worker knows this agent; known: {known}. Add it to agents.toml"
            raise InvalidDocument(field, name, "; ".join([hint, *self._broken_files()]))
        here = self._reports_of(name)
        usable = [agent for agent in here if agent.why_not is None]
        if here and not usable:
            raise InvalidDocument(field, name, f"it cannot be used: {here[0].why_not}")
        if model is not None and usable and not any(agent.takes_model for agent in usable):
            hint = f"agent {name!r} takes no model; write model_args for it in agents.toml"
            raise InvalidDocument(model_field, model, f"{hint}, or name no model")

    def default(self) -> str | None:
        """Return the default agent's name, of the first worker that has one; None if none has."""
        named = [worker.default_agent for worker in self._workers if worker.default_agent]
        return named[0] if named else None

    def resumes_in_same_folder_only(self, name: str) -> bool:
        """Whether the agent can resume a conversation only in the folder where it began."""
        return any(
            agent.keeps_to_folder for agent in self._reports_of(name) if agent.why_not is None
        )

    def can_resume(self, name: str) -> bool:
        """Whether any usable agent of this name resumes conversations; true if none is usable."""
        here = [agent for agent in self._reports_of(name) if agent.why_not is None]
        return not here or any(agent.remembers for agent in here)

    def can_fork(self, name: str) -> bool:
        """Whether all usable agents of this name can copy a conversation; False without any."""
        here = [agent for agent in self._reports_of(name) if agent.why_not is None]
        return bool(here) and all(agent.forks for agent in here)

    def any_stores_conversations(self, names: Collection[str]) -> bool:
        """Whether any of the agents stores its conversations on its host."""
        agents = [agent for name in names for agent in self._reports_of(name)]
        return any(agent.remembers and agent.kind == "command" for agent in agents)

    def usable_at(self, place: str, names: Collection[str]) -> bool:
        """Whether each of the named agents is usable on a worker at the place (worker host)."""
        here = [a for w in self._workers if w.place == place for a in w.agents_here]
        return set(names) <= {agent.name for agent in here if agent.why_not is None}

    def _broken_files(self) -> list[str]:
        """Errors of whole agents files, in which the agent may be defined."""
        faults = (fault for worker in self._workers for fault in worker.agents_faults)
        return list(dict.fromkeys(fault.text for fault in faults if fault.agent is None))

    def _reports_of(self, name: str) -> list[AgentHere]:
        """Each worker's report on the agent; empty if all workers are too old to send reports."""
        return [agent for w in self._workers for agent in w.agents_here if agent.name == name]
