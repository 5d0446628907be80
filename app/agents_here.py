"""Pure: which agents the workers have, and what a document may ask of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.errors import InvalidDocument
from app.usable import usable
from app.views import AgentHere, AgentView, WorkerView


def agents_of(workers: Sequence[WorkerView]) -> list[AgentView]:
    """Every agent that a worker knows, with where it can be used and why not elsewhere."""
    names = sorted({agent.name for worker in workers for agent in worker.agents_here})
    return [_view(name, workers) for name in names]


def _view(name: str, workers: Sequence[WorkerView]) -> AgentView:
    found = [(w.place, a) for w in workers for a in w.agents_here if a.name == name]
    first, at, why_not = usable(found)
    return AgentView(
        **first.model_dump(exclude={"why_not"}),
        default=any(worker.default_agent == name for worker in workers),
        usable_at=at,
        why_not=dict(why_not),
    )


class AgentsThere:
    """What the workers of one place, or of all, can be asked; with no worker anything goes."""

    def __init__(self, workers: Sequence[WorkerView]) -> None:
        self._workers = workers
        self.known = bool(workers)
        self._known = {agent for worker in workers for agent in worker.agents}

    def check(
        self, field: str, name: str, *, model_field: str = "", model: str | None = None
    ) -> None:
        """Raises InvalidDocument: the field, the value, the way out."""
        if not self._workers:
            return
        if name not in self._known:
            known = ", ".join(sorted(self._known)) or "none"
            hint = f"no worker knows this agent; known: {known}. Add it to agents.toml"
            raise InvalidDocument(field, name, hint)
        here = self._told(name)
        usable = [agent for agent in here if agent.why_not is None]
        if here and not usable:
            raise InvalidDocument(field, name, f"it cannot be used: {here[0].why_not}")
        if model is not None and usable and not any(agent.takes_model for agent in usable):
            hint = f"agent {name!r} cannot be told a model; write model_args for it in agents.toml"
            raise InvalidDocument(model_field, model, f"{hint}, or name no model")

    def default(self) -> str | None:
        """Who works where nobody is named: the same at every worker, or any of them."""
        named = [worker.default_agent for worker in self._workers if worker.default_agent]
        return named[0] if named else None

    def keeps_to_folders(self, name: str) -> bool:
        """Whether it finds a conversation only in the folder where that began."""
        return any(agent.keeps_to_folder for agent in self._told(name) if agent.why_not is None)

    def keeps(self, names: Collection[str]) -> bool:
        """Whether any of them keeps its conversations on its host."""
        told = [agent for name in names for agent in self._told(name)]
        return any(agent.remembers and agent.kind == "command" for agent in told)

    def can(self, place: str, names: Collection[str]) -> bool:
        """Whether all of them can be used at the place."""
        here = [a for w in self._workers if w.place == place for a in w.agents_here]
        return set(names) <= {agent.name for agent in here if agent.why_not is None}

    def _told(self, name: str) -> list[AgentHere]:
        """What each worker said of the agent; nothing where all are too old to say."""
        return [agent for w in self._workers for agent in w.agents_here if agent.name == name]
