"""Flows of the tests: steps in few words."""

from __future__ import annotations

from typing import Any

from leadhand.flows.documents import FlowDocument

Step = dict[str, Any]


def llm(text: str = "go on", **more: Any) -> Step:
    said = [{"role": "user", "content": [text]}]
    who = {"agentType": "writer", "identifier": "main"}
    return {"type": "llm", **who, "messages": said, **more}


def ask(type_: str = "break", on: str = "yes", **more: Any) -> Step:
    wanted = {"break": {"breakOn": on}, "continue": {"continueOn": on}}.get(type_, {})
    who = {"agentType": "writer", "identifier": "main", "question": "is it so?"}
    return {"type": type_, **who, **wanted, **more}


def loop(*steps: Step, **more: Any) -> Step:
    return {"type": "startLoop", "steps": list(steps), **more}


def flow(*steps: Step, **more: Any) -> FlowDocument:
    return FlowDocument.model_validate({"kind": "flow", "name": "test", "steps": steps, **more})
