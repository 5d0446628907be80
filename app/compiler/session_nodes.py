"""Compiles the steps of graphs that run loops and workflows as child sessions (pure)."""

from __future__ import annotations

from app.compiler.subflows import literals
from app.compiler.tool_nodes import CHILD_S, ToolNode
from app.compiler.workflow import compile_loop, compile_workflow
from app.domain.program import Action
from app.domain.references import literal
from app.errors import InvalidDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument


def session_node(
    path: str, session: LoopDocument | WorkflowDocument, graph: GraphDocument
) -> ToolNode:
    """Returns the fields of a graph step that runs a loop or workflow as a child session.

    The child works in the folder and place of the graph. Its texts for agents are the
    arguments of the step, filled in when it starts. Raises InvalidDocument for a session that
    could not be created.
    """
    try:
        compile_loop(session) if isinstance(session, LoopDocument) else compile_workflow(session)
    except InvalidDocument as error:
        raise InvalidDocument(f"{path}.{error.field}", error.value, error.hint) from None
    own = session.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    around = graph.model_dump(mode="json", include={"priority", "cwd", "place"}, exclude_none=True)
    return ToolNode(
        Action.CHILD,
        {
            "session": literal(session.kind),
            "document": literals({**own, "kind": session.kind, **around}),
        },
        folder=False,
        timeout_s=CHILD_S,
    )
