"""The operations on local steps, for the OpenAPI document."""

from __future__ import annotations

from api.openapi.operation import Operation, replies
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.work import BeatView, SettledView, WorkView

LOCAL_WORK: tuple[Operation, ...] = (
    Operation("work.claim", "POST", "Claim the next local step of a session, and wait for one",
              (replies(WorkView, "The step, if one is ready, and the session's status."),),
              body=ClaimWork, body_required=True),
    Operation("work.beat", "POST", "Extend the lease of an attempt at a local step",
              (replies(BeatView, "Whether the attempt may continue."),),
              body=BeatWork, body_required=True),
    Operation("work.settle", "POST", "Record the outcome of an attempt at a local step",
              (replies(SettledView, "What became of it. A repeated call changes nothing."),),
              body=SettleWork, body_required=True),
)  # fmt: skip
