"""The operations on the local steps of a session: its submitter claims and settles them."""

from __future__ import annotations

from leadhand.contract.operation import BodyRight, Operation, Scope, replies
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
