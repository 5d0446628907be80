"""The operations on the flow catalog: list, show, run and validate flows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from leadhand.contract.bodies import Query
from leadhand.contract.operation import BodyRight, Operation, Scope, replies
from leadhand.contract.sessions import SubmitQuery
from leadhand.flows.documents import FlowRun
from leadhand.models.views.flow import FlowCheckView, FlowView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

_ALL = "/v1/flows"
_ONE = f"{_ALL}/{{name:flow}}"
#: The longest path of a folder.
LONGEST = 4096


class FolderQuery(Query):
    """The folder whose agents, flows and tools are listed."""

    #: An absolute path; only the embedded services of a user look at folders.
    folder: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$", max_length=LONGEST)] | None = None


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
