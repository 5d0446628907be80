"""Every kind of document that a session can be made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from leadhand.documents import LoopDocument, WorkflowDocument
from leadhand.flow_documents import FlowDocument

AnyDocument = Annotated[LoopDocument | WorkflowDocument | FlowDocument, Field(discriminator="kind")]
