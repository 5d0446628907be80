"""The operations on the local steps of a session."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from leadhand.client.calls import Call
from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.requests import reads, request
from leadhand.contract import work
from leadhand.contract.operation import Operation
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.work import BeatView, SettledView, WorkView


class LocalWork(Operations):
    """Claims and settles the local steps of a graph, which its submitter carries out itself.

    The client needs the `work_token` of the session, or a token with the scope control.
    """

    @Op
    def claim_work(self, session: str, claim: ClaimWork) -> Ask[WorkView]:
        """Claim a session's next local step to run it here; waits up to `wait_s`, no grant if none.

        A local step is one whose tool runs in the process that submitted the session.
        """
        return reads(WorkView, _call(work.CLAIM, session, claim, waits_s=claim.wait_s))

    @Op
    def beat_work(self, session: str, attempt: BeatWork) -> Ask[BeatView]:
        """Extend the lease of an attempt; the reply says whether it may continue."""
        return reads(BeatView, _call(work.BEAT, session, attempt))

    @Op
    def settle_work(self, session: str, outcome: SettleWork) -> Ask[SettledView]:
        """Record the outcome of an attempt once; returns what became of it and the status."""
        return reads(SettledView, _call(work.SETTLE, session, outcome))


def _call(operation: Operation[Any], session: str, body: BaseModel, waits_s: float = 0.0) -> Call:
    content = body.model_dump_json().encode()
    return request(operation, session, content=content, waits_s=waits_s)
