"""Views of the local steps of a session, which its submitter carries out."""

from __future__ import annotations

from typing import Any

from leadhand.models.views.view import View


class WorkGrant(View):
    """A claimed step: what to call, and what the attempt is named by in beats and its settle."""

    address: str
    #: The step's name.
    step: str
    #: The tool's name, without `local:`.
    tool: str
    arguments: dict[str, Any] = {}
    fence: int
    nonce: str
    #: From 1.
    attempt: int
    timeout_s: float
    #: The lease: without a beat for so many seconds the step is given to another worker.
    lease_s: float
    #: The attempts of a step have one key, by which the tool can recognise a repetition.
    key: str


class WorkView(View):
    """What a worker of a session's local steps gets: a step, or the session's status."""

    #: Of the session: there is work to come only while it is `active`.
    status: str
    #: Null if no step is ready.
    grant: WorkGrant | None = None
    #: Seconds until the next retry is due, without a grant; null if no retry waits.
    next_s: float | None = None


class BeatView(View):
    """The reply to a heartbeat."""

    #: ok; stop or cancel: end the tool, its outcome does not count; lost: another attempt has it.
    order: str
    #: Seconds until the lease ends; null if it was lost.
    lease_s: float | None = None


class SettledView(View):
    """What became of an outcome."""

    #: settled; again: it failed and is tried once more; repeated: it was recorded before;
    #: superseded: the attempt does not own the step, and nothing was recorded. Of an attempt that
    #: was released: released, or cancelled if the step is not to run again.
    result: str
    #: The session's status after it.
    status: str
