"""The operations on the local steps of a session: its submitter claims and settles them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from leadhand.contract.calls import Ask, Call, Noun, Op
from leadhand.contract.operation import BodyRight, Operation, Scope, replies
from leadhand.contract.requests import reads, request
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.work import BeatView, SettledView, WorkView

_WORK = "/v1/sessions/{session}/work"
#: The token for the local steps of a session is for that session alone.
_WORKS = BodyRight("work", "own")


CLAIM = Operation[ClaimWork](
    name="work.claim", method="POST", path=f"{_WORK}/claim",
    summary="Claim the next local step of a session, and wait for one",
    responses=(replies(WorkView, "The step, if one is ready, and the session's status."),),
    scope=Scope.CONTROL,  # or the work token of the session
    body_right=_WORKS, body=ClaimWork, body_required=True,
)  # fmt: skip


BEAT = Operation[BeatWork](
    name="work.beat", method="POST", path=f"{_WORK}/beat",
    summary="Extend the lease of an attempt at a local step",
    responses=(replies(BeatView, "Whether the attempt may continue."),),
    scope=Scope.CONTROL,
    body_right=_WORKS, body=BeatWork, body_required=True,
)  # fmt: skip


SETTLE = Operation[SettleWork](
    name="work.settle", method="POST", path=f"{_WORK}/settle",
    summary="Record the outcome of an attempt at a local step",
    responses=(replies(SettledView, "What became of it. A repeated call changes nothing."),),
    scope=Scope.CONTROL,
    body_right=_WORKS, body=SettleWork, body_required=True,
)  # fmt: skip


class LocalWork(Noun):
    """Claims and settles the local steps of a graph, which its submitter carries out itself.

    The client needs the `work_token` of the session, or a token with the scope control.
    """

    @Op
    def claim_work(self, session: str, claim: ClaimWork) -> Ask[WorkView]:
        """Claim a session's next local step to run it here; waits up to `wait_s`, no grant if none.

        A local step is one whose tool runs in the process that submitted the session.
        """
        return reads(WorkView, _call(CLAIM, session, claim, waits_s=claim.wait_s))

    @Op
    def beat_work(self, session: str, attempt: BeatWork) -> Ask[BeatView]:
        """Extend the lease of an attempt; the reply says whether it may continue."""
        return reads(BeatView, _call(BEAT, session, attempt))

    @Op
    def settle_work(self, session: str, outcome: SettleWork) -> Ask[SettledView]:
        """Record the outcome of an attempt once; returns what became of it and the status."""
        return reads(SettledView, _call(SETTLE, session, outcome))


def _call(operation: Operation[Any], session: str, body: BaseModel, waits_s: float = 0.0) -> Call:
    content = body.model_dump_json().encode()
    return request(operation, session, content=content, waits_s=waits_s)
