"""Views of statistics: what ended, was checked and was used, by day."""

from __future__ import annotations

from leadhand.models.views.view import View


class SessionCount(View):
    """Ends of sessions of one kind, with one status and reason."""

    kind: str
    #: The flow, workflow or graph; empty for other kinds.
    name: str = ""
    status: str
    #: The code of the reason; empty if it has none.
    reason: str = ""
    count: int
    #: From submit to end, of all together.
    seconds: float


class LoopCount(View):
    """Ends of loops of one agent, with one verdict in one iteration."""

    #: The doer's agent; `command` or `callable` for other doers, `default` for an unnamed agent.
    agent: str
    verdict: str
    #: 100 also counts those with more.
    iterations: int
    count: int
    seconds: float


class CheckCount(View):
    """Outcomes of one checker with one verdict."""

    checker: str
    #: accept, retry, terminate; flaky, if runs on the same work failed, passed and failed; for a
    #: check without a verdict, how it ended, such as failed.
    verdict: str
    count: int
    #: Of the last attempts of all together.
    seconds: float


class UsageCount(View):
    """What the attempts of one agent used in sessions of one kind."""

    kind: str
    agent: str
    cost_usd: float = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Acceptance(View):
    """How many loops of an agent were accepted in an iteration, of those that reached it."""

    agent: str
    iteration: int
    reached: int
    accepted: int

    @property
    def rate(self) -> float:
        """Return the share of accepted loops, of those that reached the iteration (0 to 1)."""
        return self.accepted / self.reached


class DayCount(View):
    """What ended on a day, and what it cost."""

    #: Such as 2026-11-01.
    day: str
    #: Ended sessions by status.
    ended: dict[str, int] = {}
    cost_usd: float = 0


class StatisticsView(View):
    """Statistics of some days, by UTC.

    A failed session that is resumed and ends again counts twice. A child session counts in its own
    row, and so does what it used.
    """

    #: Days such as 2026-11-01.
    first: str
    last: str
    #: All days in which something was counted, in order.
    days: list[DayCount] = []
    sessions: list[SessionCount] = []
    loops: list[LoopCount] = []
    #: Derived from `loops`, by agent and iteration.
    acceptance: list[Acceptance] = []
    checks: list[CheckCount] = []
    usage: list[UsageCount] = []
    #: The cost of all attempts per completed session; null without one.
    cost_per_completed_usd: float | None = None
