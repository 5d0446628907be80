"""Approval of steps that may cost much, by a function of the caller or by a person."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from leadhand.client.client import AsyncClient
from leadhand.models.views.session import WorkGrant
from leadhand.research.models import AgentError, WorkflowStep

_APPROVE, _DENY = "approve", "deny"

#: The dollars that a step may cost; None if that is not known. It may raise an error.
Estimate = Callable[[WorkflowStep], float | None]
#: Decides about a step and its cost, in place of a person.
Decide = Callable[[WorkflowStep, float | None], bool | Awaitable[bool]]


class ApprovalDeniedError(AgentError):
    """A step was not approved; the workflow is stopped and can be resumed."""


@dataclass(frozen=True)
class ApprovalRecord:
    """What was decided about a step."""

    step: str
    #: In dollars; None if it is not known.
    cost: float | None
    decision: Literal["approved", "denied", "not asked"]


def given_estimate(step: WorkflowStep) -> float | None:
    """Returns the cost estimate that the step itself has; 0 without one."""
    return 0.0 if step.estimated_cost is None else step.estimated_cost


@dataclass
class CostApproval:
    """When to ask before a step runs, and whom.

    A person answers the session that asks: `leadhand questions` shows it. Without an answer in
    time the step is denied.
    """

    #: Ask from this cost on, in dollars; below, a step runs without a question.
    ask_from: float = 0.50
    #: From this cost on a step that runs without a question is logged.
    note_from: float = 0.10
    #: Seconds for the answer.
    answer_s: float = 300.0
    estimate: Estimate = given_estimate
    decide: Decide | None = None
    history: list[ApprovalRecord] = field(default_factory=list)
    #: Gets warnings; the agent that is given the approval sets it to its own.
    logger: logging.Logger = field(
        default_factory=lambda: logging.getLogger("leadhand.research"), repr=False, compare=False
    )

    def cost_of(self, step: WorkflowStep) -> float | None:
        """Return the estimated cost of a step; None if the estimate fails."""
        try:
            cost: Any = self.estimate(step)
            if inspect.iscoroutine(cost):
                cost.close()
                raise TypeError("`estimate` must be an ordinary function, not an asynchronous one")
            return None if cost is None else float(cost)
        except Exception as error:  # noqa: BLE001 - a cost that is not known is asked about
            self.logger.warning("the cost of step %r is not known: %s", step.name, error)
            return None

    def needs_answer(self, step: WorkflowStep) -> bool:
        """Whether a person must approve the step before it runs."""
        cost = self.cost_of(step)
        return cost is None or cost >= self.ask_from

    async def require(
        self, client: AsyncClient, step: WorkflowStep, grant: WorkGrant
    ) -> ApprovalRecord:
        """Wait for approval if the step's cost needs it; raises ApprovalDeniedError."""
        cost = self.cost_of(step)
        if cost is not None and cost < self.ask_from:
            if cost >= self.note_from:
                self.logger.info("step %r may cost $%.2f", step.name, cost)
            return self._add(ApprovalRecord(step.name, cost, "not asked"))
        approved = await self._decision(client, step, grant, cost)
        record = self._add(ApprovalRecord(step.name, cost, "approved" if approved else "denied"))
        if not approved:
            raise ApprovalDeniedError(f"step '{step.name}' was not approved")
        return record

    def _add(self, record: ApprovalRecord) -> ApprovalRecord:
        self.history.append(record)
        return record

    async def _decision(
        self, client: AsyncClient, step: WorkflowStep, grant: WorkGrant, cost: float | None
    ) -> bool:
        if self.decide is not None:
            decided = self.decide(step, cost)
            return bool(await decided if inspect.isawaitable(decided) else decided)
        asked = await client.submit(
            _question(step, cost, self.answer_s), f"approval-{grant.key}-{grant.fence}"
        )
        self.logger.info("step %r waits for an approval: leadhand answer %s", step.name, asked.id)
        result = await client.wait(asked.id)
        if result.status != "completed":
            return False
        steps = await client.steps(asked.id)
        answers = [one.answer for one in steps.items if one.answer]
        return bool(answers) and answers[0].get("choice") == _APPROVE


def _question(step: WorkflowStep, cost: float | None, answer_s: float) -> dict[str, object]:
    """A flow that asks a person."""
    price = "an unknown amount" if cost is None else f"${cost:.2f}"
    return {
        "kind": "flow",
        "name": "approval",
        "label": f"approval of {step.name}"[:120],
        "steps": [
            {
                "type": "human",
                "question": f"Step {step.name!r} ({step.tool}) may cost {price}. Run it?",
                "choices": [_APPROVE, _DENY],
                "timeoutSeconds": answer_s,
            }
        ],
    }
