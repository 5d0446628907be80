"""The operations on the flow catalog: list, show, run and validate flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from leadhand.contract.calls import Ask, Op, Steps
from leadhand.contract.fleet import FolderQuery
from leadhand.contract.operation import BodyRight, Operation, Scope, replies
from leadhand.contract.requests import calls, reads, request
from leadhand.contract.submissions import ParentEnd, Submissions, SubmitQuery, fields_of
from leadhand.flows.documents import NO_WISHES, FlowRun
from leadhand.models.views.session import SessionView
from leadhand.models.views.shared import FlowCheckView, FlowView
from leadhand.models.views.view import Page

_ALL = "/v1/flows"
_ONE = f"{_ALL}/{{name:flow}}"


LIST = Operation[FolderQuery](
    name="flows.listed", method="GET", path=_ALL,
    summary="List the flows of the catalog, broken ones included",
    responses=(replies(Page[FlowView], "All flows, by name."),),
    scope=Scope.READ,
    query=FolderQuery,
)  # fmt: skip


SHOW = Operation[FolderQuery](
    name="flows.one", method="GET", path=_ONE,
    summary="Show a flow of the catalog",
    responses=(replies(FlowView, "The flow as its file is now."),),
    scope=Scope.READ,
    query=FolderQuery,
)  # fmt: skip


RUN = Operation[FlowRun](
    name="flows.run", method="POST", path=f"{_ONE}/runs",
    summary="Run a flow of the catalog; with a step token, as a child session",
    responses=(replies(SessionView, "The session, new or known by its key.", 202,
                       headers=("Location", "ETag")),),
    scope=Scope.SUBMIT,  # the operator wrote the commands in its file
    body_right=BodyRight("spawn", "any"), query=SubmitQuery, body=FlowRun,
    headers=("Idempotency-Key",), refuses=(409, 429), makes="session",
)  # fmt: skip


VALIDATE = Operation[JsonValue](
    name="flows.validate", method="POST", path=f"{_ALL}/validate",
    summary="Validate a flow, or a graph (`kind: graph`)",
    responses=(replies(FlowCheckView, "Whether it could run here now, and the errors."),),
    scope=Scope.SUBMIT,
    body=JsonValue, body_required=True,
)  # fmt: skip


class Flows(Submissions):
    """Lists, runs and checks flows of the catalog."""

    @Op
    def run_flow(
        self,
        name: str,
        run: FlowRun | Mapping[str, Any] = NO_WISHES,
        idempotency_key: str | None = None,
        *,
        on_parent_end: ParentEnd | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Run a flow of the catalog as a new session; the same key and run return the same one.

        Inside a doer or checker it is a child of the running session, as with `submit`.
        """
        fields = yield from self._with_environment(fields_of(run), env)
        return (yield from self._start(RUN, (name,), fields, idempotency_key, on_parent_end))

    @calls(LIST)
    def flows(self) -> list[FlowView]:
        """List the flows (stored workflow definitions); an invalid one is listed with its error."""

    @calls(SHOW)
    def flow(self, name: str) -> FlowView:
        """Get a flow of the catalog by its name, with its definition. Raises FlowUnknown."""

    @Op
    def check_flow(self, definition: Any) -> Ask[FlowCheckView]:
        """Validate a flow or graph, for the workers here, without storing it; list its errors."""
        return reads(FlowCheckView, request(VALIDATE, body=definition))
