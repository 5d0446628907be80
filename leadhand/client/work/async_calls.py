"""The operations of the asynchronous client on the local steps of a session."""

from __future__ import annotations

from leadhand.client.async_connection import AsyncConnection
from leadhand.client.requests import M, parsed
from leadhand.client.work.requests import call
from leadhand.models.local_work import Attempt, BeatWork, ClaimWork, SettleWork
from leadhand.models.views.work import BeatView, SettledView, WorkView


class AsyncWorkCalls:
    """Claims and settles the local steps of a graph, which its submitter carries out itself.

    The client needs the `work_token` of the session, or a token with the scope control.
    """

    _connection: AsyncConnection

    @property
    def token(self) -> str:
        """Return the token that the client sends to the API."""
        return self._connection.transport.reach.token

    async def claim_work(self, session: str, claim: ClaimWork) -> WorkView:
        """Claim a session's next local step to run it here; waits up to `wait_s`, no grant if none.

        A local step is one whose tool runs in the process that submitted the session.
        """
        return await self._ask_work(WorkView, session, "claim", claim)

    async def beat_work(self, session: str, attempt: BeatWork) -> BeatView:
        """Extend the lease of an attempt; the reply says whether it may continue."""
        return await self._ask_work(BeatView, session, "beat", attempt)

    async def settle_work(self, session: str, outcome: SettleWork) -> SettledView:
        """Record the outcome of an attempt once; returns what became of it and the status."""
        return await self._ask_work(SettledView, session, "settle", outcome)

    async def _ask_work(
        self, model: type[M], session: str, verb: str, body: Attempt | ClaimWork
    ) -> M:
        answer = await self._connection.transport.send(call(session, verb, body))
        return parsed(model, answer.checked())
