"""A graph session without workers: the test carries out each step by a function of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Grant
from app.errors import ReferenceUnresolved
from app.sessions.local_work import is_skipped, skipped_outcome
from leadhand.graphs.documents import GraphDocument
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.result import ResultView
from tests.engine.world import World
from workers.tools.tool import STEPS, expect_success

Tool = Callable[..., JsonValue]


class GraphWorld:
    """A graph session, driven step by step; each step's tool is `echo`, and its name a function."""

    def __init__(self, world: World, steps: Sequence[Mapping[str, object]], **more: object):
        self.world = world
        given = [step if "session" in step else {"tool": "echo", **step} for step in steps]
        self.document = GraphDocument.model_validate({"steps": given, **more})
        self.engine = world.engine
        self.id = self.engine.submit.document(self.document).session
        self.ref = SessionRef(self.id, self.id)
        #: The arguments of each call, in order.
        self.calls: list[tuple[str, dict[str, JsonValue]]] = []

    @classmethod
    def of(cls, other: GraphWorld, session: str) -> GraphWorld:
        """Another session in the same world, such as a fork."""
        world = copy.copy(other)
        world.id, world.ref, world.calls = session, SessionRef(session, session), []
        return world

    def run(self, **tools: Tool) -> None:
        """Carry out all that is ready, until nothing is; a step without a function echoes."""
        while self.world.hints:
            ref, address = self.world.hints.pop(0)
            answer = self.world.claim(ref, address)
            for grant in answer.grants:
                self.carry_out(grant, tools)

    def ready(self) -> list[str]:
        """The addresses of the steps for which a hint was sent since the last call."""
        found = [address for _, address in self.world.hints]
        self.world.hints.clear()
        return found

    def grant(self, address: str) -> Grant:
        return self.world.grant(self.ref, address)

    def carry_out(self, grant: Grant, tools: Mapping[str, Tool]) -> None:
        """Carry out a granted step, and the quick ones that its end grants."""
        try:
            work = self.engine.attempts.work(self.ref, grant)
        except ReferenceUnresolved as error:
            work = self.engine.attempts.bare_work(self.ref, grant)
            outcome = failed(str(error), retryable=False)
        else:
            if is_skipped(work):
                outcome = skipped_outcome(work)
            else:
                outcome = self._call(str(work.step.label), work.inputs, tools)
        answer = self.engine.attempts.settle(work, outcome, take=["n" + grant.nonce], worker="w")
        self.engine.transitions.dispatch(self.ref, answer)
        for taken in answer.grants:
            self.carry_out(taken, tools)

    def _call(
        self, name: str, inputs: Mapping[str, JsonValue], tools: Mapping[str, Tool]
    ) -> Outcome:
        arguments = inputs["arguments"]
        assert isinstance(arguments, dict)
        built_in = STEPS.get(str(inputs["tool"]))
        if built_in is not None:
            return built_in(arguments)
        self.calls.append((name, arguments))
        try:
            value = tools[name](**arguments) if name in tools else arguments
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            names = tuple(one.__name__ for one in type(error).__mro__)
            return failed(str(error)).model_copy(update={"errors": names})
        outcome = Outcome(word="succeeded", value=value)
        return expect_success(name, outcome) if inputs.get("expect") else outcome

    @property
    def called(self) -> list[str]:
        """The names of the steps that were called, in order."""
        return [name for name, _ in self.calls]

    @property
    def status(self) -> str:
        return self.engine.queries.session(self.id).status

    @property
    def result(self) -> ResultView:
        return self.engine.queries.result(self.id)


def failed(text: str, *, retryable: bool = True) -> Outcome:
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=retryable)
