"""The operations on the local steps of a session."""

from __future__ import annotations

from pydantic import BaseModel

from leadhand.client.calls import Call
from leadhand.client.operation import Ask, Op, Operations
from leadhand.client.paths import session_path
from leadhand.client.requests import reads
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
        return reads(WorkView, _call(session, "claim", claim, waits_s=claim.wait_s))

    @Op
    def beat_work(self, session: str, attempt: BeatWork) -> Ask[BeatView]:
        """Extend the lease of an attempt; the reply says whether it may continue."""
        return reads(BeatView, _call(session, "beat", attempt))

    @Op
    def settle_work(self, session: str, outcome: SettleWork) -> Ask[SettledView]:
        """Record the outcome of an attempt once; returns what became of it and the status."""
        return reads(SettledView, _call(session, "settle", outcome))


def _call(session: str, verb: str, body: BaseModel, waits_s: float = 0.0) -> Call:
    content = body.model_dump_json().encode()
    return Call("POST", session_path(session, f"work/{verb}"), content=content, waits_s=waits_s)
